#!/bin/sh
# The guest's first program: mounts what a system has, runs /script, sends back its output, results and exit code.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
# Not a file system of its own: the job's files may be below it.
chmod 1777 /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/netns /run/lock /results
ln -sf /proc/self/fd /dev/fd
ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout
ln -sf /proc/self/fd/2 /dev/stderr

for module in virtio_pci virtio_console; do modprobe "$module"; done
ip link set lo up

# The ports appear a moment after their driver. They are, in this order: output, results, status.
tries=0
while [ ! -e /dev/vport0p3 ] && [ "$tries" -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -e /dev/vport0p3 ] || echo "init: no virtio-serial ports" >/dev/console
echo started >/dev/console

# A port can be opened once only, so the script writes to a pipe, which /dev/stdout may be opened on again.
mkfifo /run/output
cat /run/output >/dev/vport0p1 &
carrier=$!
cd /root
sh /script >/run/output 2>&1 </dev/null
code=$?
cd /
# A program left running may hold the pipe open; what was written so far is through within moments.
tries=0
while kill -0 "$carrier" 2>/dev/null && [ "$tries" -lt 20 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
tar -c -C /results . >/dev/vport0p2
echo "$code" >/dev/vport0p3
# With `-no-reboot` the emulator ends here.
reboot -f
