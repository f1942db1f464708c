//! The records of jobs: states, conditions, every way to end, and how long they are kept.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;

use crate::env::wait_for;
use crate::scene::{Scene, publish, request, rule, uuid};

/// A task that runs until the file `go` is there.
const HELD: &str = "echo $FENCE_NODE >>DIR/running; until [ -e DIR/go ]; do sleep 0.01; done";

const TYPES: [&str; 3] = ["Processing", "FenceAgentActionSucceeded", "Succeeded"];

fn held() -> Scene {
    let rules = format!("max_jobs = 1\n{}", rule("exec = [\"DIR/task\"]"));
    Scene::with_scripts(&rules, &[("task", HELD)])
}

/// The job has just these conditions, in Kubernetes' form: the status of each, one reason.
#[track_caller]
fn has_conditions(job: &Value, statuses: [&str; 3], reason: &str) {
    let conditions = job["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 3, "{job:#}");
    for ((condition, kind), status) in conditions.iter().zip(TYPES).zip(statuses) {
        let fields: Vec<_> = condition.as_object().unwrap().keys().collect();
        let all = [
            "last_transition_time",
            "message",
            "reason",
            "status",
            "type",
        ];
        let mut sorted = fields.clone();
        sorted.sort();
        assert_eq!(sorted, all);
        assert_eq!(condition["type"], kind);
        assert_eq!(condition["status"], status, "{kind} of {job:#}");
        assert_eq!(condition["reason"], reason, "{kind} of {job:#}");
        assert!(condition["message"].is_string());
        moment(&condition["last_transition_time"]);
    }
}

fn moment(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn transitions(job: &Value) -> Vec<Timestamp> {
    let conditions = job["conditions"].as_array().unwrap().iter();
    conditions
        .map(|condition| moment(&condition["last_transition_time"]))
        .collect()
}

#[test]
fn a_job_goes_from_queued_to_running_to_completed() {
    let scene = held();
    let first = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    let id = scene.request("reboot", "n2", 30.0);
    let queued = scene.job_at(&id, "Queued");
    has_conditions(&queued, ["True", "Unknown", "Unknown"], "Queued");
    assert_eq!(queued["tasks"][0]["state"], "Pending");
    assert_eq!(queued["tasks"][0]["start_time"], Value::Null);
    scene.withdraw("n1", &first);
    scene.touch("go");
    scene.ended_job(&first);
    let job = scene.ended_job(&id);
    has_conditions(&job, ["False", "True", "True"], "Completed");
    let (before, after) = (transitions(&queued), transitions(&job));
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before < after)
    );
}

#[test]
fn a_transition_is_a_change_of_status_and_not_of_reason() {
    let rules = format!("max_jobs = 1\n{}", rule("exec = [\"DIR/task\"]"));
    let body = HELD.replace("DIR/go", "DIR/go-$FENCE_NODE");
    let scene = Scene::with_scripts(&rules, &[("task", &body)]);
    let first = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    let id = scene.request("off", "n2", 30.0);
    let queued = scene.job_at(&id, "Queued");
    scene.touch("go-n1");
    scene.ended_job(&first);
    let running = scene.job_at(&id, "Running");
    has_conditions(&running, ["True", "Unknown", "Unknown"], "Running");
    assert_eq!(transitions(&queued), transitions(&running));
    scene.touch("go-n2");
    scene.ended_job(&id);
}

#[test]
fn the_record_of_a_running_task_names_its_process_group() {
    let scene = held();
    let id = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    let job = scene.job(&id).unwrap();
    let task = &job["tasks"][0];
    assert_eq!(
        (&task["state"], &task["exit_code"]),
        (&"Running".into(), &Value::Null)
    );
    let attempt = &task["attempts"][0];
    assert_eq!(attempt["state"], "Running");
    assert_eq!(attempt["completion_time"], Value::Null);
    let group = &attempt["process_group"];
    let stat = fs::read_to_string(format!("/proc/{}/stat", group["id"])).unwrap();
    let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    assert_eq!(fields[19], group["start_time"].to_string());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(group["boot_id"], boot.trim());
    scene.touch("go");
    scene.ended_job(&id);
}

#[test]
fn a_record_says_who_asked_for_what_and_when_each_step_was() {
    let rules = format!("{}name = \"t\"\n", rule("exec = [\"/bin/echo\", \"well\"]"));
    let scene = Scene::new(&rules.replace("nodes", "name = \"r\"\nperforms = \"off\"\nnodes"));
    let id = uuid();
    let asked = request(&id, "reboot", "n1", 30.0);
    scene.request_with(&id, "n1", &asked);
    let job = scene.ended_job(&id);
    assert_eq!(job["request"], asked);
    assert_eq!(
        (&job["rule"], &job["performs"]),
        (&"r".into(), &"off".into())
    );
    assert_eq!(scene.answer("n1", &id)["action_performed"], "off");
    let (task, attempt) = (&job["tasks"][0], &job["tasks"][0]["attempts"][0]);
    for one in [task, attempt] {
        assert_eq!(one["state"], "Completed");
        assert_eq!(
            (&one["exit_code"], &one["message"]),
            (&0.into(), &"well".into())
        );
    }
    assert_eq!(task["name"], "t");
    let times = [
        &job["start_time"],
        &task["start_time"],
        &attempt["completion_time"],
        &task["completion_time"],
        &job["completion_time"],
    ];
    let mut times: Vec<_> = times.into_iter().map(moment).collect();
    assert_eq!(task["start_time"], attempt["start_time"]);
    // the task's and its last attempt's end are one moment, taken twice
    times[2..4].sort_unstable();
    assert!(times.is_sorted(), "{job:#}");
}

#[test]
fn a_task_that_failed_for_good_has_an_end() {
    let scene = Scene::new(&rule("exec = [\"/bin/false\"]\nretry_count = 1"));
    let (_, job) = scene.run("off", "n1");
    let task = &job["tasks"][0];
    assert!(moment(&task["completion_time"]) >= moment(&task["attempts"][0]["completion_time"]));
}

/// Ends a job with this reason; its conditions say so in these words of the message.
#[track_caller]
fn ends_with(job: &Value, tasks: &str, reason: &str, words: &str) {
    has_conditions(job, ["False", tasks, "False"], reason);
    for condition in job["conditions"].as_array().unwrap() {
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains(words), "{words} in {message}");
    }
    assert!(moment(&job["completion_time"]) >= moment(&job["start_time"]));
}

#[test]
fn a_failing_task_ends_as_task_failed() {
    let scene = Scene::new(&rule("exec = [\"/bin/false\"]\nretry_count = 1"));
    let (answer, job) = scene.run("off", "n1");
    ends_with(&job, "False", "TaskFailed", "exit code 1");
    assert_eq!(answer["message"], job["conditions"][0]["message"]);
}

#[test]
fn a_hanging_task_ends_as_task_timed_out() {
    let task = "exec = [\"/bin/sleep\", \"1000\"]\nretry_count = 1\ntimeout = \"100ms\"";
    let (_, job) = Scene::new(&rule(task)).run("off", "n1");
    ends_with(&job, "False", "TaskTimedOut", "hung, and was killed");
    assert_eq!(job["tasks"][0]["state"], "TimedOut");
}

#[test]
fn a_task_without_time_for_another_attempt_ends_as_deadline_exceeded() {
    let (_, job) =
        Scene::new(&rule("exec = [\"/bin/false\"]\nretry_interval = \"1h\"")).run("off", "n1");
    ends_with(&job, "False", "DeadlineExceeded", "no time was left");
}

#[test]
fn a_withdrawn_request_ends_as_cancelled_and_is_not_answered() {
    let scene = held();
    let id = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    scene.withdraw("n1", &id);
    scene.touch("go");
    let job = scene.ended_job(&id);
    ends_with(&job, "True", "Cancelled", "withdrawn");
    assert!(scene.env.names_in("responses").is_empty());
}

#[test]
fn what_cant_be_prepared_ends_as_refused() {
    let scene = Scene::new(&rule("exec = [\"/bin/true\", \"{node}\"]"));
    let (_, job) = scene.run("off", "a@b");
    ends_with(&job, "Unknown", "Refused", "can't be put into a value");
    assert_eq!(job["tasks"][0]["state"], "Pending");
}

#[test]
fn a_request_too_late_ends_as_expired() {
    let scene = Scene::new(&rule("exec = [\"/bin/true\"]"));
    let id = scene.request("off", "n1", 0.0);
    ends_with(
        &scene.ended_job(&id),
        "Unknown",
        "Expired",
        "too little time",
    );
}

#[test]
fn a_request_whose_turn_never_came_ends_as_expired() {
    let scene = held();
    let first = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    let id = scene.request("off", "n2", 1.0);
    let job = scene.ended_job(&id);
    ends_with(&job, "Unknown", "Expired", "its turn didn't come");
    assert_eq!(scene.answer("n2", &id)["success"], false);
    assert_eq!(scene.text("running"), "n1\n");
    scene.touch("go");
    scene.ended_job(&first);
}

#[test]
fn a_request_that_no_rule_serves_ends_as_no_rule() {
    let scene = Scene::new(&rule("exec = [\"/bin/true\"]"));
    let (_, job) = scene.run("on", "n1");
    ends_with(&job, "Unknown", "NoRule", "no rule");
    assert_eq!(
        (&job["rule"], &job["tasks"]),
        (&Value::Null, &Value::Array(vec![]))
    );
}

#[test]
fn an_answer_of_somebody_else_ends_as_answered_elsewhere() {
    let scene = held();
    let id = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    let theirs = serde_json::json!({"request_id": id, "success": false, "message": "theirs"});
    publish(&scene.path("responses"), &format!("n1-{id}.json"), &theirs);
    scene.touch("go");
    let job = scene.ended_job(&id);
    ends_with(&job, "True", "AnsweredElsewhere", "answered with failure");
    assert_eq!(scene.answer("n1", &id), theirs);
}

#[test]
fn an_answer_that_cant_be_given_ends_as_answer_failed() {
    let scene = held();
    let id = scene.request("off", "n1", 30.0);
    scene.wait_for_file("running");
    let name = format!("responses/n1-{id}.json");
    fs::write(scene.path(&name), "no answer").unwrap();
    scene.touch("go");
    ends_with(
        &scene.ended_job(&id),
        "True",
        "AnswerFailed",
        "not answered",
    );
    assert_eq!(scene.text(&name), "no answer");
}

#[test]
fn a_record_is_replaced_whole_at_every_change() {
    let rules = rule("exec = [\"/bin/false\"]\nretry_count = 60\nretry_interval = \"1ms\"");
    let scene = Scene::new(&rules);
    let id = scene.request("off", "n1", 30.0);
    let path = scene.path(&format!("state/jobs/{id}.json"));
    let (mut versions, mut last) = (0, Vec::new());
    wait_for("the job to end", || {
        let bytes = fs::read(&path).ok()?;
        if bytes == last {
            return None;
        }
        let job: Value = serde_json::from_slice(&bytes).expect("a whole record");
        (versions, last) = (versions + 1, bytes);
        job["completion_time"].is_string().then_some(())
    });
    assert!(versions > 10, "only {versions} seen");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert_eq!(scene.env.names_in("state/jobs"), [format!("{id}.json")]);
}

/// Makes a record look as if it had been written so long ago.
fn age(scene: &Scene, id: &str, days: u64) {
    let path = scene.path(&format!("state/jobs/{id}.json"));
    let file = File::options().write(true).open(path).unwrap();
    let written = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    file.set_modified(written).unwrap();
}

#[test]
fn records_are_kept_for_keep_jobs_and_then_removed() {
    let rules = format!("keep_jobs = \"10d\"\n{}", rule("exec = [\"/bin/true\"]"));
    let mut scene = Scene::new(&rules);
    let ids = ["n1", "n2", "n3"].map(|node| {
        let id = scene.request("off", node, 30.0);
        scene.ended_job(&id);
        id
    });
    scene.until_all_is_done();
    assert_eq!(scene.stop(), Some(0));
    age(&scene, &ids[0], 11);
    age(&scene, &ids[1], 9);
    scene.start();
    wait_for("the old record's end", || {
        scene.job(&ids[0]).is_none().then_some(())
    });
    assert!(scene.job(&ids[1]).is_some() && scene.job(&ids[2]).is_some());
}

#[test]
fn the_record_of_a_job_that_is_not_over_is_never_removed() {
    let mut scene = Scene::new(
        "keep_jobs = \"0s\"\n[[rule]]\nnodes = [\"n1\"]\n[[rule.task]]\nexec = [\"/bin/true\"]\n\
         [[rule]]\nnodes = [\"*\"]\napproval = \"manual\"\n",
    );
    let (_, ended) = scene.run("off", "n1");
    let ended = ended["request"]["request_id"].as_str().unwrap();
    let waiting = scene.request("off", "n2", 30.0);
    scene.job_at(&waiting, "WaitingForApproval");
    scene.crash();
    // the newer one would go first
    scene.start();
    wait_for("the old record's end", || {
        scene.job(ended).is_none().then_some(())
    });
    assert!(scene.job(&waiting).is_some());
}
