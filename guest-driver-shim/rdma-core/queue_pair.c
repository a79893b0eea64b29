// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs: their rings, their attributes, and the table by which completions find them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic.h"

struct rnic_qp *rnic_find_qp(struct rnic_context *context, uint32_t qpn)
{
	struct rnic_qp **row = context->qp_rows[(qpn >> QP_ROW_SHIFT) & (QP_ROWS - 1)];

	return row ? row[qpn & QP_ROW_MASK] : NULL;
}

/* Rows stay once they are there: a poller may look at them without the lock. */
static int store_qp(struct rnic_context *context, struct rnic_qp *qp)
{
	uint32_t at = (qp->qpn >> QP_ROW_SHIFT) & (QP_ROWS - 1);
	int err = 0;

	pthread_mutex_lock(&context->table_lock);
	if (!context->qp_rows[at])
		context->qp_rows[at] = calloc(1U << QP_ROW_SHIFT, sizeof(struct rnic_qp *));
	if (context->qp_rows[at])
		context->qp_rows[at][qp->qpn & QP_ROW_MASK] = qp;
	else
		err = ENOMEM;
	pthread_mutex_unlock(&context->table_lock);
	return err;
}

static void lock_queues(struct rnic_cq *send, struct rnic_cq *receive)
{
	/* Always in the same order; one queue may serve both. */
	struct rnic_cq *first = send->cqn < receive->cqn ? send : receive;

	pthread_spin_lock(&first->lock);
	if (send != receive)
		pthread_spin_lock(first == send ? &receive->lock : &send->lock);
}

static void unlock_queues(struct rnic_cq *send, struct rnic_cq *receive)
{
	pthread_spin_unlock(&send->lock);
	if (send != receive)
		pthread_spin_unlock(&receive->lock);
}

/* A ring takes whole pages, so it has at least the entries of one. */
static int prepare(struct rnic_work_queue *queue, uint32_t entries, uint32_t entries_a_page, uint32_t max_sge)
{
	queue->log_entries = rnic_log2_up(entries > entries_a_page ? entries : entries_a_page);
	queue->max_sge = max_sge;
	queue->wr_ids = calloc(1U << queue->log_entries, sizeof(*queue->wr_ids));
	queue->slots = calloc(1U << queue->log_entries, sizeof(*queue->slots));
	pthread_spin_init(&queue->lock, PTHREAD_PROCESS_PRIVATE);
	return queue->wr_ids && queue->slots ? 0 : ENOMEM;
}

static void let_go(struct rnic_qp *qp)
{
	rnic_pages_put(&qp->pages);
	free(qp->sq.wr_ids);
	free(qp->sq.slots);
	free(qp->rq.wr_ids);
	free(qp->rq.slots);
	free(qp);
}

/* Rings for what is asked, both in one piece of memory, each beginning with a page. */
static int make_rings(struct rnic_context *context, struct ibv_pd *pd, struct rnic_qp *qp,
		      const struct ibv_qp_cap *cap)
{
	uint32_t send_sge = cap->max_send_sge ?: 1, receive_sge = cap->max_recv_sge ?: 1;
	uint32_t inline_segments = DIV_ROUND_UP(cap->max_inline_data, RNIC_WQE_SEGMENT_BYTES);
	enum ibv_qp_type type = qp->base.qp.qp_type;
	bool datagram = type == IBV_QPT_UD, xrc = type == IBV_QPT_XRC_SEND, receives = !qp->srq && !xrc;
	/* Control and remote segment, or address, stand before the elements, or the inline bytes. */
	uint32_t head = datagram ? 1 + DATAGRAM_SEGMENTS : 2 + xrc;
	uint32_t segments = head + (send_sge > inline_segments ? send_sge : inline_segments);
	/*
	 * An atomic has one segment more, and one element: it fits into the one
	 * slot that is the least, but for that of an extended connection.
	 */
	uint32_t slots_a_wqe = DIV_ROUND_UP(xrc && segments < 5 ? 5 : segments, SEGMENTS_A_SLOT);
	uint64_t slots = (uint64_t)cap->max_send_wr * slots_a_wqe;
	size_t sq_bytes, rq_bytes = 0;
	int err;

	if (slots > 1U << context->limits.log_sq_slots || cap->max_recv_wr > 1U << context->limits.log_rq_entries ||
	    send_sge > context->limits.max_send_sge || receive_sge > context->limits.max_receive_sge ||
	    cap->max_inline_data > context->limits.max_inline_bytes)
		return EINVAL;
	if (datagram && (send_sge > RNIC_MAX_DATAGRAM_SGE || cap->max_inline_data > RNIC_MAX_DATAGRAM_INLINE_BYTES))
		return EINVAL;
	if (xrc && (send_sge > RNIC_MAX_XRC_SGE || cap->max_inline_data > RNIC_MAX_XRC_INLINE_BYTES))
		return EINVAL;
	err = prepare(&qp->sq, slots, context->page_bytes / RNIC_WQE_SLOT_BYTES, send_sge);
	if (err)
		return err;
	qp->cap = (struct ibv_qp_cap){
		.max_send_wr = (1U << qp->sq.log_entries) / slots_a_wqe,
		.max_send_sge = send_sge,
		.max_inline_data = cap->max_inline_data,
	};
	sq_bytes = align((size_t)RNIC_WQE_SLOT_BYTES << qp->sq.log_entries, context->page_bytes);
	if (receives) {
		qp->rq.log_stride = rnic_log2_up(receive_sge);
		err = prepare(&qp->rq, cap->max_recv_wr,
			      (context->page_bytes / RNIC_WQE_SEGMENT_BYTES) >> qp->rq.log_stride, receive_sge);
		if (err)
			return err;
		qp->cap.max_recv_wr = 1U << qp->rq.log_entries;
		qp->cap.max_recv_sge = receive_sge;
		rq_bytes = (size_t)RNIC_WQE_SEGMENT_BYTES << (qp->rq.log_entries + qp->rq.log_stride);
	}
	err = rnic_pages_get(&qp->pages, pd, sq_bytes + rq_bytes, context->page_bytes);
	if (err)
		return err;
	qp->sq.ring = qp->pages.address;
	if (receives)
		qp->rq.ring = (uint8_t *)qp->pages.address + sq_bytes;
	return 0;
}

static bool is_known(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD || type == IBV_QPT_XRC_SEND;
}

static struct rnic_qp *make(struct rnic_context *context, struct ibv_pd *pd, enum ibv_qp_type type,
			    struct ibv_srq *srq, const struct ibv_qp_cap *cap, struct rnic_ureq_create_qp *request)
{
	struct rnic_qp *qp = calloc(1, sizeof(*qp));
	int err;

	if (!qp) {
		errno = ENOMEM;
		return NULL;
	}
	qp->base.qp.qp_type = type;
	qp->srq = srq ? to_rnic_srq(srq) : NULL;
	err = make_rings(context, pd, qp, cap);
	if (err) {
		let_go(qp);
		errno = err;
		return NULL;
	}
	request->sq_address = (uintptr_t)qp->sq.ring;
	request->rq_address = (uintptr_t)qp->rq.ring;
	request->log_sq_slots = qp->sq.log_entries;
	request->log_rq_entries = qp->rq.log_entries;
	request->log_rq_stride = qp->rq.log_stride;
	return qp;
}

/* The kernel has said yes, or an error. */
static struct ibv_qp *finish(struct rnic_context *context, struct rnic_qp *qp, int err, uint32_t qpn,
			     struct ibv_qp_cap *cap)
{
	if (!err) {
		qp->qpn = qpn;
		err = store_qp(context, qp);
		if (err)
			ibv_cmd_destroy_qp(&qp->base.qp);
	}
	if (err) {
		let_go(qp);
		errno = err;
		return NULL;
	}
	/* What there really is, which is at least what was asked for. */
	*cap = qp->cap;
	return &qp->base.qp;
}

struct ibv_qp *rnic_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rnic_context *context = to_rnic_context(pd->context);
	struct {
		struct ibv_create_qp core;
		struct rnic_ureq_create_qp ours;
	} command = {};
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct rnic_uresp_create_qp ours;
	} answer = {};
	struct rnic_qp *qp;
	int err;

	if (!is_known(attr->qp_type)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = make(context, pd, attr->qp_type, attr->srq, &attr->cap, &command.ours);
	if (!qp)
		return NULL;
	err = ibv_cmd_create_qp(pd, &qp->base.qp, attr, &command.core, sizeof(command), &answer.core, sizeof(answer));
	return finish(context, qp, err, answer.ours.qpn, &attr->cap);
}

/* Flags may be named as long as none is set. */
static bool takes(const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS;

	return is_known(attr->qp_type) && attr->comp_mask & IBV_QP_INIT_ATTR_PD && !(attr->comp_mask & ~known) &&
	       !(attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags);
}

/* It has neither rings nor completions: the kernel's and the device's alone. */
static struct ibv_qp *create_target(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct {
		struct ibv_create_qp_ex core;
		struct rnic_ureq_create_qp ours;
	} command = {};
	struct {
		struct ib_uverbs_ex_create_qp_resp core;
		struct rnic_uresp_create_qp ours;
	} answer = {};
	struct rnic_qp *qp = calloc(1, sizeof(*qp));
	int err = ENOMEM;

	if (qp)
		err = ibv_cmd_create_qp_ex2(context, &qp->base, attr, &command.core, sizeof(command), &answer.core,
					    sizeof(answer) RNIC_LAST_SINCE_65(NULL));
	if (err) {
		free(qp);
		errno = err;
		return NULL;
	}
	memset(&attr->cap, 0, sizeof(attr->cap));
	qp->qpn = qp->base.qp.qp_num;
	return &qp->base.qp;
}

/* Another process made it: it goes when the last one lets it go. */
struct ibv_qp *rnic_open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	struct rnic_qp *qp = calloc(1, sizeof(*qp));
	struct ib_uverbs_create_qp_resp answer;
	struct ibv_open_qp command = {};
	int err = ENOMEM;

	if (qp)
		err = ibv_cmd_open_qp(context, &qp->base, sizeof(qp->base), attr, &command, sizeof(command), &answer,
				      sizeof(answer));
	if (err) {
		free(qp);
		errno = err;
		return NULL;
	}
	qp->qpn = qp->base.qp.qp_num;
	return &qp->base.qp;
}

struct ibv_qp *rnic_create_qp_ex(struct ibv_context *ibcontext, struct ibv_qp_init_attr_ex *attr)
{
	struct rnic_context *context = to_rnic_context(ibcontext);
	struct {
		struct ibv_create_qp_ex core;
		struct rnic_ureq_create_qp ours;
	} command = {};
	struct {
		struct ib_uverbs_ex_create_qp_resp core;
		struct rnic_uresp_create_qp ours;
	} answer = {};
	struct ibv_qp *done;
	struct rnic_qp *qp;
	int err;

	if (attr->qp_type == IBV_QPT_XRC_RECV && attr->comp_mask == IBV_QP_INIT_ATTR_XRCD)
		return create_target(ibcontext, attr);
	if (!takes(attr)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = make(context, attr->pd, attr->qp_type, attr->srq, &attr->cap, &command.ours);
	if (!qp)
		return NULL;
	err = 0;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		err = rnic_offer_extended_send(qp, context->limits.features, attr->send_ops_flags);
	if (!err)
		err = ibv_cmd_create_qp_ex2(ibcontext, &qp->base, attr, &command.core, sizeof(command), &answer.core,
					    sizeof(answer) RNIC_LAST_SINCE_65(NULL));
	done = finish(context, qp, err, answer.ours.qpn, &attr->cap);
	/* The call above has set the mask anew. */
	if (done && attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		qp->base.comp_mask |= VERBS_QP_EX;
	return done;
}

/* What only sends has no other. */
static struct rnic_cq *receive_queue_of(const struct ibv_qp *qp)
{
	return to_rnic_cq(qp->qp_type == IBV_QPT_XRC_SEND ? qp->send_cq : qp->recv_cq);
}

static void forget(struct rnic_qp *qp)
{
	struct rnic_cq *send = to_rnic_cq(qp->base.qp.send_cq), *receive = receive_queue_of(&qp->base.qp);

	rnic_cq_forget(send, qp);
	if (receive != send)
		rnic_cq_forget(receive, qp);
}

static void begin_anew(struct rnic_work_queue *queue)
{
	queue->producer = 0;
	queue->consumer = 0;
}

int rnic_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	struct ibv_modify_qp command = {};
	int err = ibv_cmd_modify_qp(ibqp, attr, mask, &command, sizeof(command));

	if (err || !(mask & IBV_QP_STATE) || attr->qp_state != IBV_QPS_RESET || ibqp->qp_type == IBV_QPT_XRC_RECV)
		return err;
	lock_queues(to_rnic_cq(ibqp->send_cq), receive_queue_of(ibqp));
	forget(qp);
	begin_anew(&qp->sq);
	begin_anew(&qp->rq);
	unlock_queues(to_rnic_cq(ibqp->send_cq), receive_queue_of(ibqp));
	return 0;
}

int rnic_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct ibv_query_qp command = {};
	int err = ibv_cmd_query_qp(ibqp, attr, mask, init, &command, sizeof(command));

	if (err)
		return err;
	/* The device may have gone to ERR by itself. */
	ibqp->state = attr->qp_state;
	attr->cap = to_rnic_qp(ibqp)->cap;
	init->cap = attr->cap;
	return 0;
}

int rnic_destroy_qp(struct ibv_qp *ibqp)
{
	struct rnic_context *context = to_rnic_context(ibqp->context);
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	struct rnic_qp **row = context->qp_rows[(qp->qpn >> QP_ROW_SHIFT) & (QP_ROWS - 1)];
	int err = ibv_cmd_destroy_qp(ibqp);
	struct rnic_cq *send, *receive;

	if (err)
		return err;
	if (ibqp->qp_type == IBV_QPT_XRC_RECV) {
		free(qp);
		return 0;
	}
	send = to_rnic_cq(ibqp->send_cq);
	receive = receive_queue_of(ibqp);
	lock_queues(send, receive);
	forget(qp);
	/* The number may be another's already, made by another thread since. */
	pthread_mutex_lock(&context->table_lock);
	if (row[qp->qpn & QP_ROW_MASK] == qp)
		row[qp->qpn & QP_ROW_MASK] = NULL;
	pthread_mutex_unlock(&context->table_lock);
	unlock_queues(send, receive);
	let_go(qp);
	return 0;
}
