/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The provider's objects and what its files offer each other.
 *
 * context.c opens the device for a process, domain.c has domains, memory.c regions and the memory of rings, address.c the
 * address handles, completion_queue.c, queue_pair.c and shared_receive.c the queues, send.c and receive.c post work, poll.c takes
 * completions; extended_send.c and extended_poll.c do the same call by call. Posting and polling make no system call: they write rings in
 * the process' memory and ring doorbells on the process' own page.
 */
#ifndef RNIC_H
#define RNIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/driver.h>
#include <util/compiler.h>
#include <util/mmio.h>
#include <util/udma_barrier.h>
#include <util/util.h>

#include "compat.h"
#include "rnic_abi.h"
#include "rnic_uverbs.h"

#define SEGMENTS_A_SLOT (RNIC_WQE_SLOT_BYTES / RNIC_WQE_SEGMENT_BYTES)
#define DATAGRAM_SEGMENTS (sizeof(struct rnic_datagram_segment) / RNIC_WQE_SEGMENT_BYTES)

/* QPNs have 24 bits; the table of the process' queue pairs grows by rows. */
#define QP_ROW_SHIFT 12
#define QP_ROWS (1U << (24 - QP_ROW_SHIFT))
#define QP_ROW_MASK ((1U << QP_ROW_SHIFT) - 1)

/* Numbers of shared receive queues have 16 bits; here are those of extended connections. */
#define SRQ_ROW_SHIFT 8
#define SRQ_ROWS (1U << (16 - SRQ_ROW_SHIFT))
#define SRQ_ROW_MASK ((1U << SRQ_ROW_SHIFT) - 1)

struct rnic_qp;
struct rnic_srq;

struct rnic_context {
	struct verbs_context base;
	struct rnic_uresp_alloc_ucontext limits;
	uint8_t *doorbells;
	size_t page_bytes;
	pthread_mutex_t table_lock; /* rows of both tables */
	struct rnic_qp **qp_rows[QP_ROWS];
	struct rnic_srq **srq_rows[SRQ_ROWS];
};

/* Pages that the device reads and writes: ours, or of a parent domain's allocator. */
struct rnic_pages {
	void *address;
	size_t bytes;
	struct rnic_pd *of;
};

/* What an allocator of the application is told that the memory is for. */
#define RNIC_RESOURCE_RING 1

struct rnic_pd {
	struct ibv_pd base;
	uint32_t users; /* parent domains around it, and pages of its allocator */
	/* Of a parent domain. */
	struct rnic_pd *inside;
	struct ibv_td *td;
	void *(*alloc)(struct ibv_pd *pd, void *context, size_t bytes, size_t alignment, uint64_t resource);
	void (*free)(struct ibv_pd *pd, void *context, void *address, uint64_t resource);
	void *context;
};

struct rnic_ah {
	struct ibv_ah base;
	struct rnic_address_vector av;
};

struct rnic_cq {
	struct verbs_cq base;
	pthread_spinlock_t lock; /* consumer, and the queue pairs' completed work */
	struct ibv_pd *pd; /* whose allocator the rings come from, or none */
	struct rnic_pages pages;
	struct rnic_cqe *ring;
	struct rnic_pages record_page;
	struct rnic_consumer_record *record;
	uint32_t cqn;
	uint32_t consumer;
	/* The index at which the ring begins; what was not polled before its last resizing stands in old. */
	uint32_t begin;
	struct rnic_cqe *old;
	uint32_t old_begin;
	uint8_t log_entries;
	uint8_t arm_sequence;
	/* Between start_poll and end_poll. */
	struct ibv_wc current;
	uint64_t current_time;
};

struct rnic_srq {
	struct verbs_srq base;
	pthread_spinlock_t lock; /* producer and free slots */
	struct rnic_pages pages; /* slots, then the index ring */
	__le16 *indices;
	uint64_t *wr_ids;
	uint16_t *next_free;
	uint16_t first_free;
	uint16_t producer;
	uint32_t free_slots;
	uint32_t srqn;
	uint32_t max_sge;
	uint8_t log_slots;
	uint8_t log_stride;
};

struct rnic_work_queue {
	pthread_spinlock_t lock; /* producer; what has completed is under the completion queue's */
	uint8_t *ring;
	uint64_t *wr_ids;
	uint8_t *slots; /* of the send queue: slots of the WQE that begins here */
	uint16_t producer;
	uint16_t consumer;
	uint8_t log_entries;
	uint8_t log_stride; /* of the receive queue */
	uint32_t max_sge;
};

#define RNIC_BUILDER_SGE (RNIC_MAX_SEND_SGE + 1)

/* A work request that ibv_wr_* calls gather. */
struct rnic_builder {
	struct ibv_send_wr wr;
	struct ibv_sge sge[RNIC_BUILDER_SGE];
	/* What a work request of ibv_post_send has no place for. */
	struct rnic_flush_segment flush;
	uint8_t bytes[RNIC_MAX_INLINE_BYTES];
	uint16_t before;
	bool open;
	int err;
};

struct rnic_qp {
	struct verbs_qp base;
	struct rnic_srq *srq;
	struct rnic_pages pages;
	struct rnic_work_queue sq;
	struct rnic_work_queue rq;
	uint32_t qpn;
	struct ibv_qp_cap cap;
	struct rnic_builder builder;
};

static inline struct rnic_context *to_rnic_context(struct ibv_context *context)
{
	return container_of(context, struct rnic_context, base.context);
}

static inline struct rnic_pd *to_rnic_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct rnic_pd, base);
}

static inline void rnic_count(uint32_t *count, int more)
{
	__atomic_fetch_add(count, more, __ATOMIC_ACQ_REL);
}

static inline struct rnic_cq *to_rnic_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct rnic_cq, base.cq);
}

static inline struct rnic_srq *to_rnic_srq(struct ibv_srq *srq)
{
	return container_of(srq, struct rnic_srq, base.srq);
}

static inline struct rnic_qp *to_rnic_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct rnic_qp, base.qp);
}

static inline uint32_t rnic_position(const struct rnic_work_queue *queue, uint16_t index)
{
	return index & ((1U << queue->log_entries) - 1);
}

/* The poller moves the consumer under another lock than ours: acquire what it has read before the entry is reused. */
static inline uint32_t rnic_room(const struct rnic_work_queue *queue)
{
	uint16_t consumer = __atomic_load_n(&queue->consumer, __ATOMIC_ACQUIRE);

	return (1U << queue->log_entries) - (uint16_t)(queue->producer - consumer);
}

static inline void rnic_set_consumer(struct rnic_work_queue *queue, uint16_t consumer)
{
	__atomic_store_n(&queue->consumer, consumer, __ATOMIC_RELEASE);
}

/* The phase that an entry of a ring has once it is written. */
static inline uint32_t rnic_phase(uint32_t index, uint8_t log_entries)
{
	return 1 ^ ((index >> log_entries) & 1);
}

/* One aligned store of 8 bytes, behind everything that it announces. */
static inline void rnic_ring_doorbell(struct ibv_context *context, uint32_t offset, uint64_t value)
{
	udma_to_device_barrier();
	mmio_wc_start();
	mmio_write64_le(to_rnic_context(context)->doorbells + offset, htole64(value));
	mmio_flush_writes();
}

static inline uint8_t rnic_log2_up(uint32_t count)
{
	uint8_t log = 0;

	while (log < 31 && (1U << log) < count)
		log++;
	return log;
}

/* domain.c */
struct ibv_pd *rnic_alloc_pd(struct ibv_context *context);
int rnic_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *rnic_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr);
int rnic_dealloc_td(struct ibv_td *td);
struct ibv_pd *rnic_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
struct ibv_xrcd *rnic_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int rnic_close_xrcd(struct ibv_xrcd *xrcd);

/* memory.c */
int rnic_pages_get(struct rnic_pages *pages, struct ibv_pd *pd, size_t bytes, size_t page_bytes);
void rnic_pages_put(struct rnic_pages *pages);
struct ibv_mr *rnic_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t hca_va, int access);
int rnic_rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length, int access);
int rnic_dereg_mr(struct verbs_mr *mr);
struct ibv_mw *rnic_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int rnic_dealloc_mw(struct ibv_mw *mw);

/* address.c */
struct ibv_ah *rnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int rnic_destroy_ah(struct ibv_ah *ah);

/* completion_queue.c */
struct ibv_cq *rnic_create_cq(struct ibv_context *context, int entries, struct ibv_comp_channel *channel,
			      int comp_vector);
struct ibv_cq_ex *rnic_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
int rnic_resize_cq(struct ibv_cq *cq, int entries);
int rnic_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int rnic_destroy_cq(struct ibv_cq *cq);

/* poll.c */
struct rnic_cqe *rnic_cq_entry(const struct rnic_cq *cq, uint32_t index);
bool rnic_cq_take(struct rnic_cq *cq, struct ibv_wc *wc, uint64_t *time_ns);
void rnic_cq_tell_consumer(struct rnic_cq *cq);
int rnic_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int rnic_req_notify_cq(struct ibv_cq *cq, int solicited_only);
void rnic_cq_event(struct ibv_cq *cq);
void rnic_cq_forget(struct rnic_cq *cq, struct rnic_qp *qp);
void rnic_cq_forget_srq(struct rnic_cq *cq, struct rnic_srq *srq);

/* extended_poll.c */
void rnic_cq_offer_extended(struct ibv_cq_ex *cq);

/* shared_receive.c */
struct ibv_srq *rnic_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *rnic_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int rnic_get_srq_num(struct ibv_srq *srq, uint32_t *number);
struct rnic_srq *rnic_find_srq(struct rnic_context *context, uint32_t srqn);
int rnic_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int rnic_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int rnic_destroy_srq(struct ibv_srq *srq);
int rnic_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
uint64_t rnic_srq_free_slot(struct rnic_srq *srq, uint16_t slot);

/* queue_pair.c */
struct ibv_qp *rnic_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *rnic_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
int rnic_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int rnic_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int rnic_destroy_qp(struct ibv_qp *qp);
struct ibv_qp *rnic_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
struct rnic_qp *rnic_find_qp(struct rnic_context *context, uint32_t qpn);

/* send.c */
bool rnic_takes_sends(const struct rnic_qp *qp);
int rnic_post_one_send(struct rnic_qp *qp, const struct ibv_send_wr *wr, const struct rnic_flush_segment *flush);
void rnic_announce_sends(struct rnic_qp *qp);
int rnic_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int rnic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* extended_send.c */
int rnic_offer_extended_send(struct rnic_qp *qp, uint64_t features, uint64_t operations);

/* receive.c */
void rnic_put_receive(struct rnic_data_segment *data, uint8_t log_stride, const struct ibv_recv_wr *wr);
int rnic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif /* RNIC_H */
