// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Queue pairs: creation, attributes and states. The device decides what a transition needs and allows. */
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>

#include "rnic.h"

/* QPN 0 does not exist and 1 is left to management. */
#define FIRST_QPN 2

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

static int create_in_device(struct rnic_dev *dev, struct rnic_qp *qp, u32 doorbell_page,
			    struct rnic_create_qp *body)
{
	body->qpn = cpu_to_le32(qp->qpn);
	body->qp_type = RNIC_QP_TYPE_RC;
	body->flags = qp->signal_all ? RNIC_QP_SIGNAL_ALL : 0;
	body->pdn = cpu_to_le32(to_rnic_pd(qp->ibqp.pd)->pdn);
	body->send_cqn = cpu_to_le32(to_rnic_cq(qp->ibqp.send_cq)->cqn);
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
	err = rnic_user_ring_get(dev, &qp->sq_ring, request.sq_address, (u64)RNIC_WQE_SLOT_BYTES << request.log_sq_slots);
	if (err)
		return err;
	err = rnic_user_ring_get(dev, &qp->rq_ring, request.rq_address,
				 (u64)RNIC_WQE_SEGMENT_BYTES << (request.log_rq_entries + request.log_rq_stride));
	if (err)
		return err;
	body.log_sq_slots = request.log_sq_slots;
	body.log_rq_entries = request.log_rq_entries;
	body.log_rq_stride = request.log_rq_stride;
	body.sq_pages = qp->sq_ring.pages.fields;
	body.rq_pages = qp->rq_ring.pages.fields;
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
	body.log_sq_slots = qp->sq.log_entries;
	body.log_rq_entries = qp->rq.log_entries;
	body.log_rq_stride = qp->rq.log_stride;
	body.sq_pages = rnic_one_run(qp->sq_memory.iova);
	body.rq_pages = rnic_one_run(qp->rq_memory.iova);
	return create_in_device(dev, qp, 0, &body);
}

int rnic_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibqp->device);
	const struct rnic_device_limits *limits = &dev->limits;
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	int err;

	if (attr->qp_type != IB_QPT_RC || attr->create_flags || attr->srq || attr->rwq_ind_tbl)
		return -EOPNOTSUPP;
	if (attr->cap.max_send_wr > BIT(limits->log_sq_slots) || attr->cap.max_recv_wr > BIT(limits->log_rq_entries) ||
	    attr->cap.max_send_sge > limits->max_send_sge || attr->cap.max_recv_sge > limits->max_receive_sge ||
	    attr->cap.max_inline_data > le16_to_cpu(limits->max_inline_bytes))
		return -EINVAL;
	qp->signal_all = attr->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->cap = attr->cap;
	err = xa_alloc_cyclic(&dev->qps, &qp->qpn, qp, XA_LIMIT(FIRST_QPN, BIT(dev->log_qps) - 1), &dev->next_qpn,
			      GFP_KERNEL);
	if (err < 0)
		return err == -EBUSY ? -ENOMEM : err;
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
	if (qp->ibqp.uobject)
		return;
	rnic_cq_forget(to_rnic_cq(qp->ibqp.send_cq), qp->qpn);
	rnic_cq_forget(to_rnic_cq(qp->ibqp.recv_cq), qp->qpn);
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

static int put_address(struct rnic_address_vector *av, const struct rdma_ah_attr *ah)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(ah);

	if (ah->type != RDMA_AH_ATTR_TYPE_ROCE || !(rdma_ah_get_ah_flags(ah) & IB_AH_GRH))
		return -EINVAL;
	memcpy(av->dest_gid, grh->dgid.raw, sizeof(av->dest_gid));
	memcpy(av->dest_mac, ah->roce.dmac, sizeof(av->dest_mac));
	av->sgid_index = cpu_to_le16(grh->sgid_index);
	av->flow_label = cpu_to_le32(grh->flow_label & 0xfffff);
	av->traffic_class = grh->traffic_class;
	av->hop_limit = grh->hop_limit;
	av->service_level = rdma_ah_get_sl(ah) & 7;
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
		.access = cpu_to_le32(attr->qp_access_flags),
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
		err = put_address(&body.av, &attr->ah_attr);
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

static void get_address(const struct rnic_address_vector *av, struct rdma_ah_attr *ah)
{
	union ib_gid dest;

	memcpy(dest.raw, av->dest_gid, sizeof(dest.raw));
	ah->type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_grh(ah, &dest, le32_to_cpu(av->flow_label), le16_to_cpu(av->sgid_index), av->hop_limit,
			av->traffic_class);
	rdma_ah_set_ah_flags(ah, IB_AH_GRH);
	rdma_ah_set_port_num(ah, RNIC_PORT);
	rdma_ah_set_sl(ah, av->service_level);
	memcpy(ah->roce.dmac, av->dest_mac, sizeof(av->dest_mac));
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
	attr->qp_access_flags = le32_to_cpu(answer.access);
	attr->cap = qp->cap;
	get_address(&answer.av, &attr->ah_attr);
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
	init->cap = qp->cap;
	init->sq_sig_type = qp->signal_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	init->qp_type = ibqp->qp_type;
	init->port_num = RNIC_PORT;
	return 0;
}
