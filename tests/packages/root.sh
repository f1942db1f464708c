# PID 1 of a node with a root of its own: `sh root.sh BASE PACKAGES INIT NAME`, in new namespaces.
# What is written there goes to memory; PACKAGES is seen as /mnt.
set -eu
base=$1
packages=$2
init=$3
name=$4

mount --make-rprivate /
mount --bind "$packages" /media
mount --bind "$base" /srv
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir=/srv,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
cp "$init" /mnt/root/init.sh
for dir in dev proc sys; do
    mount --rbind "/$dir" "/mnt/root/$dir"
done
mount --bind /media /mnt/root/mnt
mkdir /mnt/root/old
cd /mnt/root
pivot_root . old
umount --lazy /old
rmdir /old
exec sh /init.sh "$name"
