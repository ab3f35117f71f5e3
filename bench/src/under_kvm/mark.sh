#!/bin/sh
# Notes what KVM and hypernic have counted so far.
printf 'Content-type: text/plain\r\n\r\nnoted\n'
told() { grep -c '^{"counters"' /run/hypernic.out; }
{
    echo "MARK $QUERY_STRING"
    cd /sys/kernel/debug/kvm/*-*/ && for name in exits mmio_exits io_exits; do echo "KVM $name $(cat $name)"; done
    had=$(told)
    kill -USR1 "$(cat /run/hypernic.pid)"
    while [ "$(told)" = "$had" ]; do sleep 0.02; done
    grep '^{"counters"' /run/hypernic.out | tail -n 1
} >>/run/marks
