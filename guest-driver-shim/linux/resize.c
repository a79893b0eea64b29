// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Completion queues that change under traffic: another ring, and how long events are held back. */
#include "rnic.h"

#ifdef RNIC_RESIZES_USER_CQS
int rnic_resize_cq(struct ib_cq *ibcq, unsigned int entries, struct ib_udata *udata)
#else
int rnic_resize_cq(struct ib_cq *ibcq, int entries, struct ib_udata *udata)
#endif
{
	struct rnic_dev *dev = to_rnic(ibcq->device);
	struct rnic_uresp_resize_cq answer = {};
	struct rnic_cq *cq = to_rnic_cq(ibcq);
	struct rnic_ureq_resize_cq request;
	struct rnic_user_memory ring = {};
	struct rnic_cq_position position;
	struct rnic_resize_cq body = {};
	int err;

	/* The kernel's queues stay as they were made. */
	if (!udata)
		return -EOPNOTSUPP;
	if (udata->inlen < sizeof(request))
		return -EINVAL;
	err = ib_copy_from_udata(&request, udata, sizeof(request));
	if (err)
		return err;
	if (entries < 1 || request.log_entries > dev->limits.log_cq_entries || BIT(request.log_entries) < entries ||
	    memchr_inv(request.reserved, 0, sizeof(request.reserved)))
		return -EINVAL;
	err = rnic_user_ring_get(dev, &ring, request.ring_address, sizeof(struct rnic_cqe) << request.log_entries);
	if (err)
		return err;
	body.cqn = cpu_to_le32(cq->cqn);
	body.log_entries = request.log_entries;
	body.pages = ring.pages.fields;
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_RESIZE_CQ, &body, sizeof(body), &position, sizeof(position));
	if (err) {
		rnic_user_memory_put(dev, &ring);
		return err;
	}
	/* The process reads the rest of the old ring by itself. */
	rnic_user_memory_put(dev, &cq->ring);
	cq->ring = ring;
	cq->log_entries = request.log_entries;
	ibcq->cqe = BIT(cq->log_entries);
	answer.first_index = le32_to_cpu(position.first_index);
	return ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
}

int rnic_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct rnic_modify_cq body = {
		.cqn = cpu_to_le32(to_rnic_cq(ibcq)->cqn),
		.count = cpu_to_le16(count),
		.period_us = cpu_to_le16(period),
	};

	return rnic_command(to_rnic(ibcq->device), RNIC_COMMAND_OPCODE_MODIFY_CQ, &body, sizeof(body), NULL, 0);
}
