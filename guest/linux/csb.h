/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guest's side of a Communication Status Block (CSB): a page of memory in
 * which a driver and its NIC tell each other how far they are, so that a
 * register is written, and an interrupt raised, only for somebody who sleeps.
 *
 * Nothing here knows a chip. A driver has one `struct csb` per NIC, embeds the
 * calls below where it writes its tail registers and where it polls, and
 * writes the page's address where its NIC wants it.
 *
 * Layout and protocol are those of the published e1000 and r8169 patches of
 * 2013 (V. Maffione's thesis, section 4.4, and Rizzo, Lettieri, Maffione,
 * "Speeding up packet I/O in virtual machines", ANCS 2013, section 4).
 */
#ifndef CSB_H
#define CSB_H

#include <linux/device.h>
#include <linux/dma-mapping.h>
#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/version.h>

/* A subsystem device id that says: this NIC knows the CSB. */
#define CSB_SUBDEVICE	0x1101

#define CSB_SIZE	4096
#define CSB_NONE	cpu_to_le32(0xFFFFFFFF)

/* How long a packet that was sent may wait to be freed when nothing else looks,
 * in nanoseconds: its sender may be waiting for room in its socket's buffer.
 */
#define CSB_PATIENCE	1000000

/* While the queue is stopped, what is sent is looked at after this time, then
 * after twice the time, and so on; after so many looks in vain by an interrupt.
 */
#define CSB_SOON	125000
#define CSB_LOOKS	4

/* How many rounds without a packet the NIC is asked to go before it sleeps: some
 * tens of microseconds of its processor, for which a sender seldom calls.
 */
#define CSB_ROUNDS	64

/* A poll that found as many packets is part of a stream, and the next one comes
 * after this time in nanoseconds, not after an interrupt: what a poll costs is
 * the guest's alone, what an interrupt costs others pay too.
 */
#define CSB_STREAM	4
#define CSB_GAP		250000

/* So many packets of a stream earn one more poll after this time that found
 * fewer, and at most so many: a stream whose sender pauses goes on soon.
 */
#define CSB_EARNING	64
#define CSB_EARNED	8

/* How many packets in a row keep programs from the processor before they get
 * it, the longest they get it for at once, in nanoseconds, and at most how many
 * times what the packets took.
 */
#define CSB_TURN	128
#define CSB_PAUSE	4000000
#define CSB_SHARE	4

/* Each side writes its own half, on cache lines of its own. */
struct csb_page {
	/* written by the guest */
	__le32 guest_tdt;		/* what it would write to the tail */
	__le32 guest_need_txkick;	/* interrupt me for what is sent */
	__le32 guest_need_rxkick;	/* interrupt me for what is received */
	__le32 guest_csb_on;		/* without it the NIC is an ordinary one */
	__le32 guest_rdt;
	__le32 guest_txkick_at;
	__le32 guest_use_msix;
	__le32 reserved[9];
	/* written by the NIC */
	__le32 host_tdh;
	__le32 host_need_txkick;	/* write the tail register: I sleep */
	__le32 host_txcycles_lim;	/* (by the guest) rounds without work */
	__le32 host_txcycles;
	__le32 host_rdh;
	__le32 host_need_rxkick;
	__le32 host_isr;
	__le32 host_rxkick_at;		/* a kick when guest_rdt passes this */
	__le32 vnet_ring_high;
	__le32 vnet_ring_low;
};

static_assert(offsetof(struct csb_page, host_tdh) == 0x40);
static_assert(sizeof(struct csb_page) == 0x68);

struct csb {
	struct csb_page *page;		/* NULL: not to be had, or not wanted */
	dma_addr_t dma;
	bool on;
	struct napi_struct *napi;
	struct hrtimer timer;
	u32 vain;			/* looks since the queue was stopped */
	u32 earned;			/* packets of a stream, for more polls */
	u32 run;			/* packets of polls without an end */
	u64 since;			/* when the first of these polls ended */
	u64 pause;			/* until the next, to let programs run */
	u32 share;			/* how many times the polls' time that is */
	bool pausing;			/* the timer ends such a pause */
};

/* Whether a softirq has interrupted a program, or keeps one waiting. */
static inline bool csb_keeps_waiting(void)
{
	return current->mm || need_resched();
}

static inline enum hrtimer_restart csb_late(struct hrtimer *timer)
{
	struct csb *csb = container_of(timer, struct csb, timer);

	if (csb->pausing) {
		csb->pausing = false;
		/* They are still at it, or were done before. */
		if (csb_keeps_waiting())
			csb->share = min_t(u32, csb->share + 1, CSB_SHARE);
		else
			csb->share = max_t(u32, csb->share - 1, 1);
	}
	napi_schedule(csb->napi);
	return HRTIMER_NORESTART;
}

/* Gets the page. Without one the driver goes on as ever. */
static inline bool csb_alloc(struct csb *csb, struct device *dev,
			     struct napi_struct *napi)
{
	csb->page = dma_alloc_coherent(dev, CSB_SIZE, &csb->dma, GFP_KERNEL);
	csb->napi = napi;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
	hrtimer_init(&csb->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	csb->timer.function = csb_late;
#else
	hrtimer_setup(&csb->timer, csb_late, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL_SOFT);
#endif
	return csb->page;
}

static inline void csb_free(struct csb *csb, struct device *dev)
{
	if (csb->page)
		dma_free_coherent(dev, CSB_SIZE, csb->page, csb->dma);
	csb->page = NULL;
}

/* Fills the page for rings that have just been set up: nothing to send, and
 * receive buffers up to @rdt, of which the register knows too. The caller then
 * tells the NIC the page's address. False where there is no page.
 */
static inline bool csb_start(struct csb *csb, u32 rdt)
{
	struct csb_page *page = csb->page;

	if (!page)
		return false;
	memset(page, 0, CSB_SIZE);
	page->guest_rdt = cpu_to_le32(rdt);
	page->guest_txkick_at = CSB_NONE;
	page->guest_need_rxkick = cpu_to_le32(1);
	page->host_need_txkick = cpu_to_le32(1);
	page->host_rxkick_at = CSB_NONE;
	page->host_txcycles_lim = cpu_to_le32(CSB_ROUNDS);
	page->guest_csb_on = cpu_to_le32(1);
	csb->on = true;
	csb->vain = 0;
	csb->earned = 0;
	csb->run = 0;
	csb->pause = 0;
	csb->share = 2;
	csb->pausing = false;
	wmb();	/* before the register that makes the NIC look */
	return true;
}

/* Ends its use, when neither sender nor poll is at work any more. The caller
 * then takes the page's address away from the NIC. False if it was not in use.
 */
static inline bool csb_stop(struct csb *csb)
{
	if (!csb->on)
		return false;
	csb->on = false;
	csb->page->guest_csb_on = 0;
	hrtimer_cancel(&csb->timer);
	return true;
}

/* How many of @count descriptors the NIC has sent since @clean. */
static inline u32 csb_sent(const struct csb *csb, u32 clean, u32 count)
{
	u32 head = le32_to_cpu(READ_ONCE(csb->page->host_tdh));

	return head < count ? (head + count - clean) % count : 0;
}

/* There are packets up to @tdt, their descriptors written. True if the NIC
 * sleeps, and the caller must write the tail register.
 */
static inline bool csb_send(struct csb *csb, u32 tdt)
{
	WRITE_ONCE(csb->vain, 0);	/* who sends was not stopped */
	wmb();	/* descriptors before the tail */
	WRITE_ONCE(csb->page->guest_tdt, cpu_to_le32(tdt));
	virt_mb();	/* the NIC: host_need_txkick, barrier, guest_tdt */
	if (!READ_ONCE(csb->page->host_need_txkick))
		return false;
	/* One call is enough, and it comes after this: the NIC will look. */
	WRITE_ONCE(csb->page->host_need_txkick, 0);
	return true;
}

/* There are receive buffers up to @rdt, where it was @old before. True if the
 * NIC waits for them, and the caller must write the tail register.
 */
static inline bool csb_give(struct csb *csb, u32 old, u32 rdt, u32 count)
{
	u32 at;

	wmb();	/* descriptors before the tail */
	WRITE_ONCE(csb->page->guest_rdt, cpu_to_le32(rdt));
	virt_mb();	/* the NIC: host_rxkick_at, barrier, guest_rdt */
	if (READ_ONCE(csb->page->host_need_rxkick))
		return true;
	at = le32_to_cpu(READ_ONCE(csb->page->host_rxkick_at));
	/* passed: in (old, rdt], around the ring's end */
	return at < count &&
	       (rdt + count - at) % count < (rdt + count - old) % count;
}

/* In the interrupt, and first in a poll: no interrupts while we look. False
 * without CSB, where the caller must mask them at the NIC.
 */
static inline bool csb_awake(struct csb *csb)
{
	if (!csb->on)
		return false;
	WRITE_ONCE(csb->page->guest_need_txkick, 0);
	WRITE_ONCE(csb->page->guest_need_rxkick, 0);
	return true;
}

/* The queue is stopped: it must hear of what is sent. True if something was, and
 * the caller must poll. A NIC that is at work will soon have sent some of the
 * ring, so a timer looks first. One that is not has an interrupt to give later.
 */
static inline bool csb_want_sent(struct csb *csb, u32 clean, u32 count)
{
	u32 vain = READ_ONCE(csb->vain);
	ktime_t soon;

	if (csb_sent(csb, clean, count))
		return true;
	if (vain < CSB_LOOKS) {
		soon = ns_to_ktime(CSB_SOON << vain);
		WRITE_ONCE(csb->vain, vain + 1);
		if (!hrtimer_is_queued(&csb->timer) ||
		    hrtimer_get_remaining(&csb->timer) > soon)
			hrtimer_start(&csb->timer, soon, HRTIMER_MODE_REL_SOFT);
		return false;
	}
	WRITE_ONCE(csb->page->guest_need_txkick, cpu_to_le32(1));
	virt_mb();	/* the NIC: host_tdh, barrier, guest_need_txkick */
	return csb_sent(csb, clean, count);
}

/* After a poll that took all of the @got packets it was allowed: whether it is
 * to end although there are more. A NIC that is faster than its guest keeps it
 * polling for ever, and what it receives is lost for want of somebody to read it
 * ("receive livelock"). So when programs wait, they get some times the time that
 * the polls took, more while they are not done by then and less when they are;
 * packets wait in the ring meanwhile, and push back on their sender.
 */
static inline bool csb_gives_way(struct csb *csb, int got)
{
	u64 now;

	if (!csb->on || !got)
		return false;
	now = ktime_get_ns();
	if (!csb->run) {
		csb->since = now;
		csb->run = 1;
		return false;
	}
	csb->run += got;
	if (csb->run <= CSB_TURN || !csb_keeps_waiting())
		return false;
	csb->pause = min_t(u64, csb->share * (now - csb->since), CSB_PAUSE);
	return true;
}

/* Last in a poll that found @got packets. True if the next one comes by itself;
 * otherwise there will be an interrupt for what is received, and the caller
 * looks once more and polls if there is something.
 */
static inline bool csb_rest(struct csb *csb, int got)
{
	u64 delay = csb->pause;

	if (got >= CSB_STREAM) {
		csb->earned = min_t(u32, csb->earned + got,
				    CSB_EARNED * CSB_EARNING);
		delay = delay ?: CSB_GAP;
	} else if (!delay && csb->earned >= CSB_EARNING) {
		csb->earned -= CSB_EARNING;
		delay = CSB_GAP;
	}
	csb->run = 0;
	csb->pausing = csb->pause;
	csb->pause = 0;
	if (delay) {
		hrtimer_start(&csb->timer, ns_to_ktime(delay),
			      HRTIMER_MODE_REL_SOFT);
		return true;
	}
	csb->earned = 0;
	WRITE_ONCE(csb->page->guest_need_rxkick, cpu_to_le32(1));
	virt_mb();	/* the NIC: descriptors, barrier, guest_need_rxkick */
	return false;
}

/* Has the sent packets looked at in a while, if nothing does before. */
static inline void csb_watch(struct csb *csb)
{
	if (!hrtimer_is_queued(&csb->timer))
		hrtimer_start(&csb->timer, ns_to_ktime(CSB_PATIENCE),
			      HRTIMER_MODE_REL_SOFT);
}

#endif
