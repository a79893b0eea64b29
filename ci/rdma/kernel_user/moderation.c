// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Events that a completion queue holds back. How long one takes is compared with the period that was asked for: one
 * that is held back never comes sooner, on any machine; of those that are not the fastest of several counts, since this
 * guest may have to wait for its processor.
 */
#include "stage.h"

#include <linux/delay.h>
#include <linux/ktime.h>

#define COUNT 8
#define PERIOD_US 60000
#define TRIES 20

struct watch {
	struct ib_cq *cq;
	struct side sides[2];
	struct completion event;
	ktime_t at;
};

static void on_event(struct ib_cq *cq, void *context)
{
	struct watch *watch = context;

	watch->at = ktime_get();
	complete(&watch->event);
}

/* All completions are there, each a success. */
static int poll(struct watch *watch, u32 count)
{
	unsigned long end = jiffies + LIMIT;
	struct ib_wc wc;
	int found;

	while (count) {
		found = ib_poll_cq(watch->cq, 1, &wc);
		FAIL_UNLESS(found >= 0 && time_before(jiffies, end), "%u completions are missing\n", count);
		if (!found) {
			usleep_range(100, 200);
			continue;
		}
		FAIL_UNLESS(wc.status == IB_WC_SUCCESS, "a write: status %s\n", ib_wc_status_msg(wc.status));
		count--;
	}
	return 0;
}

/* From posting so many writes, all signaled, to the event that the queue was armed for. */
static int time_event(struct stage *stage, struct watch *watch, u32 count, s64 *us)
{
	struct side *from = &watch->sides[0], *to = &watch->sides[1];
	struct ib_sge element = { from->address, 8, stage->pd->local_dma_lkey };
	struct ib_rdma_wr write = { .wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &element, .num_sge = 1,
					    .send_flags = IB_SEND_SIGNALED },
				    .remote_addr = to->address, .rkey = stage->pd->unsafe_global_rkey };
	ktime_t start;
	u32 index;
	int err;

	reinit_completion(&watch->event);
	err = ib_req_notify_cq(watch->cq, IB_CQ_NEXT_COMP);
	FAIL_UNLESS(!err, "arming: %d\n", err);
	start = ktime_get();
	for (index = 0; index < count; index++) {
		err = ib_post_send(from->qp, &write.wr, NULL);
		FAIL_UNLESS(!err, "a write is refused: %d\n", err);
	}
	FAIL_UNLESS(wait_for_completion_timeout(&watch->event, LIMIT), "no event of %u writes\n", count);
	*us = ktime_us_delta(watch->at, start);
	return poll(watch, count);
}

static int comes_at_once(struct stage *stage, struct watch *watch, u32 count)
{
	s64 us, fastest = S64_MAX;
	u32 try;
	int err;

	for (try = 0; try < TRIES; try++) {
		err = time_event(stage, watch, count, &us);
		if (err)
			return err;
		fastest = min(fastest, us);
	}
	FAIL_UNLESS(fastest < PERIOD_US / 2, "the fastest event of %u writes took %lld us\n", count, fastest);
	return 0;
}

static int is_held_back(struct stage *stage, struct watch *watch, u32 count)
{
	s64 us;
	int err = time_event(stage, watch, count, &us);

	if (err)
		return err;
	/* The device's clock is not this kernel's. */
	FAIL_UNLESS(us >= PERIOD_US - PERIOD_US / 50, "an event of %u writes was not held back: %lld us\n", count, us);
	return 0;
}

static int play(struct stage *stage, struct watch *watch)
{
	int err = comes_at_once(stage, watch, 1);

	if (err)
		return err;
	err = rdma_set_cq_moderation(watch->cq, COUNT, PERIOD_US);
	FAIL_UNLESS(!err, "moderation is refused: %d\n", err);
	err = is_held_back(stage, watch, 1) ?: is_held_back(stage, watch, COUNT - 1) ?:
	      comes_at_once(stage, watch, COUNT);
	if (err)
		return err;
	err = rdma_set_cq_moderation(watch->cq, 0, 0);
	FAIL_UNLESS(!err, "its end is refused: %d\n", err);
	err = comes_at_once(stage, watch, 1);
	if (!err)
		pr_info("events of a moderated queue were right\n");
	return err;
}

int moderate_events(struct stage *stage)
{
	struct watch *watch = kzalloc(sizeof(*watch), GFP_KERNEL);
	struct ib_cq_init_attr attr = { .cqe = 4 * DEPTH };
	int err;

	FAIL_UNLESS(watch, "no memory\n");
	init_completion(&watch->event);
	watch->cq = ib_create_cq(stage->device, on_event, NULL, watch, &attr);
	if (IS_ERR(watch->cq)) {
		pr_err("no completion queue: %pe\n", watch->cq);
		kfree(watch);
		return -EIO;
	}
	err = open_pair(stage, watch->sides, watch->cq) ?: play(stage, watch);
	close_pair(stage, watch->sides);
	ib_destroy_cq(watch->cq);
	kfree(watch);
	return err;
}
