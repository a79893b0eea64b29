// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs: creation, attributes and states. The device decides what a transition needs and allows. */
#include "rnic.h"

/* QPN 0 does not exist and 1 is the queue pair of management. */
#define FIRST_QPN (RNIC_GSI_QPN + 1)

/* What both sides call alike; the device knows no others. */
#define MASK_KNOWN                                                                                                \
	(IB_QP_STATE | IB_QP_CUR_STATE | IB_QP_EN_SQD_ASYNC_NOTIFY | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX |      \
	 IB_QP_PORT | IB_QP_QKEY | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | \
	 IB_QP_RQ_PSN | IB_QP_MAX_QP_RD_ATOMIC | IB_QP_ALT_PATH | IB_QP_MIN_RNR_TIMER | IB_QP_SQ_PSN |            \
	 IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_PATH_MIG_STATE | IB_QP_DEST_QPN)

static_assert(IB_QP_STATE == RNIC_ATTR_STATE && IB_QP_AV == RNIC_ATTR_AV && IB_QP_PATH_MTU == RNIC_ATTR_PATH_MTU);
static_assert(IB_QP_SQ_PSN == RNIC_ATTR_SQ_PSN && IB_QP_DEST_QPN == RNIC_ATTR_DEST_QPN);
static_assert(IB_QPS_RTS == RNIC_QP_STATE_RTS && IB_QPS_ERR == RNIC_QP_STATE_ERR);
static_assert(IB_ACCESS_REMOTE_WRITE == RNIC_ACCESS_REMOTE_WRITE && IB_ACCESS_REMOTE_READ == RNIC_ACCESS_REMOTE_READ);

/* Rights of a queue pair. Others, for operations that the device has not, grant nothing and are left out. */
#define QP_ACCESS \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC)

static u32 device_access(const struct rnic_dev *dev, int access)
{
	return rnic_device_access(access & (QP_ACCESS | (dev->features & RNIC_FEATURE_FLUSH ? RNIC_FLUSH_ACCESS : 0)));
}

static int create_in_device(struct rnic_dev *dev, struct rnic_qp *qp, u32 doorbell_page,
			    struct rnic_create_qp *body)
{
	body->qpn = cpu_to_le32(qp->qpn);
	body->qp_type = qp->type;
	body->flags |= qp->signal_all ? RNIC_QP_SIGNAL_ALL : 0;
	if (qp->ibqp.srq) {
		body->flags |= RNIC_QP_SRQ;
		body->srqn = cpu_to_le32(to_rnic_srq(qp->ibqp.srq)->srqn);
	}
	body->pdn = cpu_to_le32(to_rnic_pd(qp->ibqp.pd)->pdn);
	body->send_cqn = cpu_to_le32(to_rnic_cq(qp->ibqp.send_cq)->cqn);
	if (qp->type != RNIC_QP_TYPE_XRC_INI)
		body->receive_cqn = cpu_to_le32(to_rnic_cq(qp->ibqp.recv_cq)->cqn);
	body->doorbell_page = cpu_to_le32(doorbell_page);
	return rnic_command(dev, RNIC_COMMAND_OPCODE_CREATE_QP, body, sizeof(*body), NULL, 0);
}

static void let_go(struct rnic_dev *dev, struct rnic_qp *qp)
{
	rnic_user_memory_put(dev, &qp->sq_ring);
	rnic_user_memory_put(dev, &qp->rq_ring);
	rnic_work_queues_destroy(dev, qp);
}

static int create_for_process(struct rnic_dev *dev, struct rnic_qp *qp, struct ib_udata *udata)
{
	struct rnic_ucontext *context =
		rdma_udata_to_drv_context(udata, struct rnic_ucontext, ibucontext);
	struct rnic_uresp_create_qp answer = { .qpn = qp->qpn };
	struct rnic_ureq_create_qp request;
	struct rnic_create_qp body = {};
	int err;

	if (udata->inlen < sizeof(request))
		return -EINVAL;
	err = ib_copy_from_udata(&request, udata, sizeof(request));
	if (err)
		return err;
	if (request.log_sq_slots > dev->limits.log_sq_slots || request.log_rq_entries > dev->limits.log_rq_entries ||
	    request.log_rq_stride > RNIC_MAX_LOG_RQ_STRIDE || memchr_inv(request.reserved, 0, sizeof(request.reserved)))
		return -EINVAL;
	err = rnic_user_ring_get(dev, &qp->sq_ring, request.sq_address,
				 (u64)RNIC_WQE_SLOT_BYTES << request.log_sq_slots);
	if (err)
		return err;
	body.log_sq_slots = request.log_sq_slots;
	body.sq_pages = qp->sq_ring.pages.fields;
	if (!qp->ibqp.srq && qp->type != RNIC_QP_TYPE_XRC_INI) {
		err = rnic_user_ring_get(dev, &qp->rq_ring, request.rq_address, (u64)RNIC_WQE_SEGMENT_BYTES <<
					 (request.log_rq_entries + request.log_rq_stride));
		if (err)
			return err;
		body.log_rq_entries = request.log_rq_entries;
		body.log_rq_stride = request.log_rq_stride;
		body.rq_pages = qp->rq_ring.pages.fields;
	}
	err = create_in_device(dev, qp, context->doorbell_page, &body);
	if (err)
		return err;
	err = ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
	if (err)
		rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_QP, qp->qpn);
	return err;
}

static int create_for_kernel(struct rnic_dev *dev, struct rnic_qp *qp)
{
	struct rnic_create_qp body = {};
	int err = rnic_work_queues_create(dev, qp);

	if (err)
		return err;
	if (dev->features & (RNIC_FEATURE_FAST_REGISTER | RNIC_FEATURE_LOCAL_DMA_KEY))
		body.flags = RNIC_QP_PRIVILEGED;
	body.log_sq_slots = qp->sq.log_entries;
	body.sq_pages = rnic_one_run(qp->sq_memory.iova);
	if (!qp->ibqp.srq) {
		body.log_rq_entries = qp->rq.log_entries;
		body.log_rq_stride = qp->rq.log_stride;
		body.rq_pages = rnic_one_run(qp->rq_memory.iova);
	}
	return create_in_device(dev, qp, 0, &body);
}

/* A target has neither rings nor queues: its domain says what the peer may name. */
static int create_target(struct rnic_dev *dev, struct rnic_qp *qp, struct ib_xrcd *domain)
{
	struct rnic_create_qp body = {
		.qpn = cpu_to_le32(qp->qpn),
		.qp_type = qp->type,
		.pdn = cpu_to_le32(to_rnic_xrcd(domain)->xrcdn),
	};

	return rnic_command(dev, RNIC_COMMAND_OPCODE_CREATE_QP, &body, sizeof(body), NULL, 0);
}

static int set_type(const struct rnic_dev *dev, struct rnic_qp *qp, enum ib_qp_type type, bool process)
{
	u64 needed = 0;

	switch (type) {
	case IB_QPT_RC:
		qp->type = RNIC_QP_TYPE_RC;
		break;
	case IB_QPT_UC:
		qp->type = RNIC_QP_TYPE_UC;
		needed = RNIC_FEATURE_UC;
		break;
	case IB_QPT_UD:
		qp->type = RNIC_QP_TYPE_UD;
		needed = RNIC_FEATURE_UD;
		break;
	case IB_QPT_GSI:
		qp->type = RNIC_QP_TYPE_GSI;
		needed = RNIC_FEATURE_UD;
		break;
	case IB_QPT_XRC_INI:
		qp->type = RNIC_QP_TYPE_XRC_INI;
		needed = RNIC_FEATURE_XRC;
		/* The kernel's own work requests have no place for the peer's queue. */
		if (!process)
			return -EOPNOTSUPP;
		break;
	case IB_QPT_XRC_TGT:
		qp->type = RNIC_QP_TYPE_XRC_TGT;
		needed = RNIC_FEATURE_XRC;
		break;
	default:
		return -EOPNOTSUPP;
	}
	return (dev->features & needed) == needed ? 0 : -EOPNOTSUPP;
}

static int check_capacity(const struct rnic_dev *dev, const struct rnic_qp *qp, const struct ib_qp_cap *cap)
{
	u32 max_inline = le16_to_cpu(dev->limits.max_inline_bytes), max_sge = dev->limits.max_send_sge;

	if (rnic_is_datagram(qp)) {
		max_inline = min_t(u32, max_inline, RNIC_MAX_DATAGRAM_INLINE_BYTES);
		max_sge = min_t(u32, max_sge, RNIC_MAX_DATAGRAM_SGE);
	}
	if (qp->type == RNIC_QP_TYPE_XRC_INI) {
		max_inline = min_t(u32, max_inline, RNIC_MAX_XRC_INLINE_BYTES);
		max_sge = min_t(u32, max_sge, RNIC_MAX_XRC_SGE);
	}
	return cap->max_send_wr > BIT(dev->limits.log_sq_slots) || cap->max_recv_wr > BIT(dev->limits.log_rq_entries) ||
	       cap->max_send_sge > max_sge || cap->max_recv_sge > dev->limits.max_receive_sge ||
	       cap->max_inline_data > max_inline ? -EINVAL : 0;
}

static int choose_number(struct rnic_dev *dev, struct rnic_qp *qp)
{
	int err;

	if (qp->type == RNIC_QP_TYPE_GSI) {
		qp->qpn = RNIC_GSI_QPN;
		return xa_insert(&dev->qps, qp->qpn, qp, GFP_KERNEL);
	}
	err = xa_alloc_cyclic(&dev->qps, &qp->qpn, qp, XA_LIMIT(FIRST_QPN, BIT(dev->log_qps) - 1), &dev->next_qpn,
			      GFP_KERNEL);
	return err == -EBUSY ? -ENOMEM : min(err, 0);
}

int rnic_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibqp->device);
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	int err;

	if (attr->create_flags || attr->rwq_ind_tbl)
		return -EOPNOTSUPP;
	err = set_type(dev, qp, attr->qp_type, udata);
	if (!err)
		err = check_capacity(dev, qp, &attr->cap);
	if (err)
		return err;
	qp->signal_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->cap = attr->cap;
	err = choose_number(dev, qp);
	if (err)
		return err;
	if (qp->type == RNIC_QP_TYPE_XRC_TGT)
		err = create_target(dev, qp, attr->xrcd);
	else
		err = udata ? create_for_process(dev, qp, udata) : create_for_kernel(dev, qp);
	if (err) {
		xa_erase(&dev->qps, qp->qpn);
		let_go(dev, qp);
		return err;
	}
	ibqp->qp_num = qp->qpn;
	attr->cap = qp->cap;
	return 0;
}

static void forget_completions(struct rnic_qp *qp)
{
	if (qp->ibqp.uobject || qp->type == RNIC_QP_TYPE_XRC_TGT)
		return;
	rnic_cq_forget(to_rnic_cq(qp->ibqp.send_cq), qp->qpn, qp->ibqp.srq);
	rnic_cq_forget(to_rnic_cq(qp->ibqp.recv_cq), qp->qpn, qp->ibqp.srq);
}

int rnic_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibqp->device);
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	int err = rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_QP, qp->qpn);

	if (err)
		return err;
	forget_completions(qp);
	/* Its last events, before the number can be another's; then nobody is left who looked it up. */
	rnic_eq_drain(&dev->eqs[RNIC_ASYNC_EQN]);
	xa_erase(&dev->qps, qp->qpn);
	rnic_eq_drain(&dev->eqs[RNIC_ASYNC_EQN]);
	let_go(dev, qp);
	return 0;
}

int rnic_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibqp->device);
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	struct rnic_qp_attributes body = {
		.qpn = cpu_to_le32(qp->qpn),
		.mask = cpu_to_le32(mask),
		.state = attr->qp_state,
		.current_state = attr->cur_qp_state,
		.path_mtu = attr->path_mtu,
		.port = attr->port_num,
		.access = cpu_to_le32(device_access(dev, attr->qp_access_flags)),
		.pkey_index = cpu_to_le16(attr->pkey_index),
		.max_rd_atomic = attr->max_rd_atomic,
		.max_dest_rd_atomic = attr->max_dest_rd_atomic,
		.min_rnr_timer = attr->min_rnr_timer,
		.timeout = attr->timeout,
		.retry_cnt = attr->retry_cnt,
		.rnr_retry = attr->rnr_retry,
		.rq_psn = cpu_to_le32(attr->rq_psn),
		.sq_psn = cpu_to_le32(attr->sq_psn),
		.dest_qpn = cpu_to_le32(attr->dest_qp_num),
		.qkey = cpu_to_le32(attr->qkey),
		.sqd_notify = attr->en_sqd_async_notify,
	};
	int err;

	if (mask & ~MASK_KNOWN)
		return -EOPNOTSUPP;
	if (mask & IB_QP_AV) {
		err = rnic_put_address(&body.av, &attr->ah_attr);
		if (err)
			return err;
	}
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_MODIFY_QP, &body, sizeof(body), NULL, 0);
	/* A dead device's queue pairs can only be put away. */
	if (err && READ_ONCE(dev->dead) && (mask & IB_QP_STATE) &&
	    (attr->qp_state == IB_QPS_ERR || attr->qp_state == IB_QPS_RESET))
		err = 0;
	/* A transition that its state forbids is the caller's mistake, not a queue that is busy. */
	if (err == -EBUSY)
		err = -EINVAL;
	if (!err && (mask & IB_QP_STATE) && attr->qp_state == IB_QPS_RESET) {
		forget_completions(qp);
		rnic_work_queues_reset(qp);
	}
	return err;
}

int rnic_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	struct rnic_dev *dev = to_rnic(ibqp->device);
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	struct rnic_object_number object = { .number = cpu_to_le32(qp->qpn) };
	struct rnic_qp_attributes answer;
	int err;

	err = rnic_command(dev, RNIC_COMMAND_OPCODE_QUERY_QP, &object, sizeof(object), &answer, sizeof(answer));
	if (err)
		return err;
	memset(attr, 0, sizeof(*attr));
	memset(init, 0, sizeof(*init));
	attr->qp_state = answer.state;
	attr->cur_qp_state = answer.state;
	attr->path_mtu = answer.path_mtu;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->qkey = le32_to_cpu(answer.qkey);
	attr->rq_psn = le32_to_cpu(answer.rq_psn);
	attr->sq_psn = le32_to_cpu(answer.sq_psn);
	attr->dest_qp_num = le32_to_cpu(answer.dest_qpn);
	attr->qp_access_flags = rnic_verbs_access(le32_to_cpu(answer.access));
	attr->cap = qp->cap;
	rnic_get_address(&answer.av, &attr->ah_attr);
	attr->pkey_index = le16_to_cpu(answer.pkey_index);
	attr->en_sqd_async_notify = answer.sqd_notify;
	attr->max_rd_atomic = answer.max_rd_atomic;
	attr->max_dest_rd_atomic = answer.max_dest_rd_atomic;
	attr->min_rnr_timer = answer.min_rnr_timer;
	attr->port_num = answer.port;
	attr->timeout = answer.timeout;
	attr->retry_cnt = answer.retry_cnt;
	attr->rnr_retry = answer.rnr_retry;

	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->cap = qp->cap;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	init->port_num = RNIC_PORT;
	return 0;
}
