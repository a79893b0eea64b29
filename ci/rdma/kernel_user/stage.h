/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the parts of this test share. module.c finds the device and plays all parts, connection.c has the queue pairs,
 * messages.c sends and writes, fast_region.c registers memory by work requests, moderation.c holds events back.
 */
#ifndef STAGE_H
#define STAGE_H

/* Before what prints is declared. */
#define pr_fmt(fmt) "rnic_kernel_user: " fmt

#include <linux/completion.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#define BUFFER_BYTES 8192
#define DEPTH 16
#define LIMIT (20 * HZ)

/* A queue pair and its memory. */
struct side {
	struct ib_qp *qp;
	u8 *buffer;
	u64 address;
};

struct work {
	struct ib_cqe cqe;
	struct completion done;
	struct ib_wc wc;
};

struct stage {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct side sides[2];
};

#define FAIL_UNLESS(condition, ...)                  \
	do {                                         \
		if (!(condition)) {                  \
			pr_err(__VA_ARGS__);         \
			return -EIO;                 \
		}                                    \
	} while (0)

/* connection.c */
void prepare(struct work *work);
int await(struct work *work, enum ib_wc_status status, const char *what);
int open_pair(struct stage *stage, struct side sides[2], struct ib_cq *send_cq);
void close_pair(struct stage *stage, struct side sides[2]);

/* messages.c */
int exchange_messages(struct stage *stage);
int fail_outstanding(struct side *side);

/* fast_region.c */
int use_fast_regions(struct stage *stage);

/* moderation.c */
int moderate_events(struct stage *stage);

#endif /* STAGE_H */
