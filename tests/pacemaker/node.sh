# PID 1 of one node: `sh node.sh NAME [AGENT]`, started in new namespaces by node.rs. Without AGENT the
# node's own root has one.
#
# The node lives as long as its standard input is open. However the test ends, even by SIGKILL,
# the kernel closes that pipe, this process leaves, and everything in the node dies with it.
set -eu
umask 022
name=$1
agent=${2:-}

# /proc is still the test's own here, so this is the node's process id as the test sees it.
read -r pid _ </proc/self/stat

for dir in /run /var/log /var/lib/pacemaker /var/lib/corosync /etc/corosync; do
    mount -t tmpfs -o mode=0755 tmpfs "$dir"
done

if [ -n "$agent" ]; then
    # A copy of /usr/sbin with the agent in it, seen by this node only: the host's is left alone.
    mkdir /run/sbin
    cp -a /usr/sbin/. /run/sbin/
    rm -f /run/sbin/fence_recorder
    touch /run/sbin/fence_recorder
    mount --bind "$agent" /run/sbin/fence_recorder
    mount --rbind /run/sbin /usr/sbin
fi

for dir in /tmp /dev/shm; do
    mount -t tmpfs -o mode=1777 tmpfs "$dir"
done
mount -t proc proc /proc
# A node that hears it was fenced may reboot its machine by this file. That would be the host.
[ ! -e /proc/sysrq-trigger ] || mount --bind /dev/null /proc/sysrq-trigger
hostname "$name"
ip link set lo up
echo "$pid"

# The test now lays the configuration and plugs the network in, then says go.
read -r _

mkdir -p /run/lock /var/log/cluster
cd /var/lib/pacemaker
install -d -o hacluster -g haclient . cib pengine cores blackbox
install -o hacluster -g haclient -m 0600 /etc/corosync/cib.xml cib/cib.xml

corosync -f >/var/log/corosync.out 2>&1 &
until corosync-cfgtool -s >/dev/null 2>&1; do sleep 0.05; done
PCMK_logfile=/var/log/pacemaker.log PCMK_logfacility=none \
    pacemakerd >/var/log/pacemakerd.out 2>&1 &
exec cat >/dev/null
