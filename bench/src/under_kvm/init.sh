#!/bin/sh
# The inner guest: each of its NICs in turn, with a mark in the host's notes before and after each thing it does.
export PATH=/bin HOME=/root
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null; mount -t tmpfs t /tmp
rest() { echo INNER-END; while :; do sleep 1000; done; }
fail() { dmesg | tail -n 20; echo "INNER-FAILED: $1"; rest; }
face() { for i in /sys/class/net/*; do [ "$(cat $i/address)" = "$1" ] && echo ${i##*/}; done; }
# Interrupts so far of an interface, or of its virtio device.
irqs() {
    device=$(readlink -f /sys/class/net/$1/device)
    grep -E " ($1|${device##*/})(-|,|@|\$)" /proc/interrupts | awk '{ sum += $2 } END { print sum + 0 }'
}
mark() { wget -q -O /dev/null "http://10.10.$marker.1:8000/cgi-bin/mark?$1-$(irqs $2)" || fail "no mark $1"; }
ip link set lo up
for m in realtek e1000 igb igbvf r8169 virtio_net; do mp $m || fail "no driver $m"; done
n=0
while [ $n -lt $nics ]; do
    i=$(face "$(printf 52:54:00:00:0a:%02x $n)")
    [ -n "$i" ] || fail "no NIC $n"
    ip link set $i up && ip addr add 10.10.$n.2/24 dev $i || fail "NIC $n does not come up"
    n=$((n + 1))
done
n=0
while [ $n -lt $nics ]; do
    tries=0
    until ping -q -c 1 -W 5 10.10.$n.1 >/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 20 ] || fail "no answer by NIC $n"
    done
    n=$((n + 1))
done
round=0
while [ $round -lt $rounds ]; do
    n=0
    while [ $n -lt $nics ]; do
        i=$(face "$(printf 52:54:00:00:0a:%02x $n)")
        mark $n-begin $i
        mark $n-mark $i
        ping -q -c $pings -i 0.02 -W 60 10.10.$n.1 >/dev/null || fail "no answer to pings by NIC $n"
        mark $n-rtt $i
        wget -q -O /tmp/file "http://10.10.$n.1:8000/file" || fail "no file by NIC $n"
        mark $n-rx $i
        nc 10.10.$n.1 9000 </tmp/file >/dev/null || fail "the file does not go back by NIC $n"
        mark $n-tx $i
        n=$((n + 1))
    done
    echo "ROUND $round"
    round=$((round + 1))
done
rest
