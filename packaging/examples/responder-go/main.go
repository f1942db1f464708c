// Answers fence requests with the outcome of: fence-node ACTION NODE
//
// fence-node is yours to write: exit 0 only when NODE is safe; the last line it prints becomes the
// answer's message. It may be run again for a request that a crash cut off, so it must not mind that
// its work is done already. The standard library is all that this needs.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const maxRequest = 64 * 1024

// An open file description's lock: the agent's responder_check=1 sees it, and it ends with the process.
const ofdSetLock = 37

var (
	requests  = or("REQUESTS", "/run/fence_recorder/requests")
	responses = or("RESPONSES", "/run/fence_recorder/responses")
	fenceNode = or("FENCE_NODE", "/usr/local/sbin/fence-node")
	claimed   = filepath.Join(requests, ".claimed")
	fileName  = regexp.MustCompile(`^([^/.\x00-\x1f-][^/\x00-\x1f]*)-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})\.json$`)
)

func or(variable, otherwise string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return otherwise
}

// Request is what the agent asks for; what else is in the file is ignored.
type Request struct {
	ID       string  `json:"request_id"`
	Action   string  `json:"action"`
	Node     string  `json:"target_node"`
	Deadline *string `json:"deadline"`
}

// Response is the answer.
type Response struct {
	ID        string `json:"request_id"`
	Success   bool   `json:"success"`
	Message   string `json:"message"`
	Performed string `json:"action_performed"`
	Node      string `json:"target_node"`
	Timestamp string `json:"timestamp"`
}

// readRequest takes only what is a request, and tells its deadline.
func readRequest(name string) (*Request, time.Time, error) {
	var deadline time.Time
	flags := os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	file, err := os.OpenFile(filepath.Join(claimed, name), flags, 0)
	if err != nil {
		return nil, deadline, err
	}
	defer file.Close()
	status, err := file.Stat()
	if err != nil {
		return nil, deadline, err
	}
	if !status.Mode().IsRegular() || status.Sys().(*syscall.Stat_t).Uid != 0 && os.Geteuid() == 0 {
		return nil, deadline, errors.New("not a regular file of root")
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRequest+1))
	if err != nil || len(text) > maxRequest {
		return nil, deadline, errors.New("too large, or unreadable")
	}
	request := new(Request)
	if err := json.Unmarshal(text, request); err != nil {
		return nil, deadline, err
	}
	match := fileName.FindStringSubmatch(name)
	if match == nil || match[1] != request.Node || match[2] != request.ID {
		return nil, deadline, errors.New("its name does not follow from what is in it")
	}
	if request.Action != "off" && request.Action != "on" && request.Action != "reboot" {
		return nil, deadline, fmt.Errorf("its action is %q", request.Action)
	}
	// fence_dummy gives none: a minute after it was written
	deadline = status.ModTime().Add(time.Minute)
	if request.Deadline != nil {
		if deadline, err = time.Parse(time.RFC3339, *request.Deadline); err != nil {
			return nil, deadline, err
		}
	}
	return request, deadline, nil
}

// isClaimed is false once the agent has given up: it removes its claim.
func isClaimed(name string) bool {
	_, err := os.Lstat(filepath.Join(claimed, name))
	return err == nil
}

// publish writes the answer whole and durably, and never over another.
func publish(name string, response *Response) error {
	text, err := json.Marshal(response)
	if err != nil {
		return err
	}
	temporary := filepath.Join(responses, "."+name+".tmp")
	os.Remove(temporary)
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	defer os.Remove(temporary)
	_, err = file.Write(text)
	if err := errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Link(temporary, filepath.Join(responses, name)); err != nil {
		return err
	}
	directory, err := os.Open(responses)
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}

// fence runs the program, which has until the deadline and is killed with all it started.
func fence(request *Request, deadline time.Time) (bool, string) {
	if time.Until(deadline) < time.Second {
		return false, "too late: nothing was done"
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(-500*time.Millisecond))
	defer cancel()
	command := exec.CommandContext(ctx, fenceNode, request.Action, request.Node)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	said, err := command.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	message := lines[len(lines)-1]
	if err != nil && message == "" {
		message = err.Error()
	}
	return err == nil, message
}

// work does what a claim asks for.
func work(name string) {
	request, deadline, err := readRequest(name)
	if errors.Is(err, fs.ErrNotExist) {
		return // withdrawn
	}
	if err != nil {
		log.Printf("%q is no request: %v", name, err)
		rejected := filepath.Join(requests, ".rejected")
		os.MkdirAll(rejected, 0o755)
		os.Rename(filepath.Join(claimed, name), filepath.Join(rejected, name))
		return
	}
	// an answer that is there says that the work was done before a crash
	if _, err := os.Lstat(filepath.Join(responses, name)); err != nil {
		success, message := fence(request, deadline)
		if !isClaimed(name) {
			// nobody waits for the answer, and it could be taken for news
			log.Printf("%s of %q was withdrawn", request.Action, request.Node)
			return
		}
		response := &Response{request.ID, success, message, request.Action, request.Node, time.Now().Format(time.RFC3339)}
		if err := publish(name, response); err != nil {
			log.Printf("the answer can't be written: %v", err)
			return
		}
		log.Printf("%s of %q: success=%v %q", request.Action, request.Node, success, message)
	}
	os.Remove(filepath.Join(claimed, name))
}

// serve claims a request: whoever renames it has it. Nodes do not wait for each other.
func serve(name string) {
	if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".json") || isClaimed(name) {
		return
	}
	if os.Rename(filepath.Join(requests, name), filepath.Join(claimed, name)) == nil {
		go work(name)
	}
}

// take serves all that is there.
func take(directory string, serve func(string)) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		log.Fatalf("%s can't be read: %v", directory, err)
	}
	for _, entry := range entries {
		serve(entry.Name())
	}
}

func lock() *os.File {
	path := filepath.Join(requests, ".responder.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		log.Fatalf("%s can't be opened: %v", path, err)
	}
	if err := syscall.FcntlFlock(file.Fd(), ofdSetLock, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
		log.Fatalf("another responder serves %s", requests)
	}
	return file
}

func main() {
	if err := os.MkdirAll(claimed, 0o755); err != nil {
		log.Fatal(err)
	}
	held := lock()
	defer held.Close()
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err == nil {
		_, err = syscall.InotifyAddWatch(watch, requests, syscall.IN_MOVED_TO|syscall.IN_CLOSE_WRITE)
	}
	if err != nil {
		log.Fatalf("%s can't be watched: %v", requests, err)
	}
	// only now is looked at what is there already: nothing falls in between
	take(claimed, func(name string) { go work(name) })
	take(requests, serve)
	log.Printf("serving %s", requests)
	events := make([]byte, 64*1024)
	for {
		length, err := syscall.Read(watch, events)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || length == 0 {
			log.Fatalf("the watch ended: %v", err)
		}
		names(events[:length], serve)
	}
}

// names calls serve with the name in each event; after an overflow, with all that is there.
func names(events []byte, serve func(string)) {
	for len(events) >= syscall.SizeofInotifyEvent {
		mask := binary.NativeEndian.Uint32(events[4:8])
		length := int(binary.NativeEndian.Uint32(events[12:16]))
		name := events[syscall.SizeofInotifyEvent : syscall.SizeofInotifyEvent+length]
		events = events[syscall.SizeofInotifyEvent+length:]
		if mask&syscall.IN_Q_OVERFLOW != 0 {
			take(requests, serve)
		} else {
			serve(string(bytes.TrimRight(name, "\x00")))
		}
	}
}
