// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting of receives. */
#include <errno.h>
#include <string.h>

#include "rnic.h"

/* A receive WQE: its elements, and an end where there is room for more. */
void rnic_put_receive(struct rnic_data_segment *data, uint8_t log_stride, const struct ibv_recv_wr *wr)
{
	uint32_t used = 0;
	int index;

	for (index = 0; index < wr->num_sge; index++) {
		/* An element of no bytes would end the list. */
		if (!wr->sg_list[index].length)
			continue;
		data[used].address = htole64(wr->sg_list[index].addr);
		data[used].length_bytes = htole32(wr->sg_list[index].length);
		data[used].lkey = htole32(wr->sg_list[index].lkey);
		used++;
	}
	if (used < 1U << log_stride)
		memset(&data[used], 0, sizeof(*data));
}

static int post_one(struct rnic_work_queue *queue, const struct ibv_recv_wr *wr)
{
	uint32_t at = rnic_position(queue, queue->producer);
	uint8_t *wqe = queue->ring + (((size_t)at * RNIC_WQE_SEGMENT_BYTES) << queue->log_stride);

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > queue->max_sge)
		return EINVAL;
	if (!rnic_room(queue))
		return ENOMEM;
	rnic_put_receive((struct rnic_data_segment *)wqe, queue->log_stride, wr);
	queue->wr_ids[at] = wr->wr_id;
	queue->producer++;
	return 0;
}

int rnic_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	uint16_t before;
	int err = 0;

	if (qp->srq) {
		*bad = wr;
		return EINVAL;
	}
	pthread_spin_lock(&qp->rq.lock);
	before = qp->rq.producer;
	/* In RESET the device takes no receives. */
	if (ibqp->state == IBV_QPS_RESET) {
		err = EINVAL;
		*bad = wr;
		wr = NULL;
	}
	for (; wr; wr = wr->next) {
		err = post_one(&qp->rq, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->rq.producer != before)
		rnic_ring_doorbell(ibqp->context, RNIC_DB_RECEIVE,
				   (uint64_t)qp->rq.producer << 32 | (uint64_t)qp->qpn << 8);
	pthread_spin_unlock(&qp->rq.lock);
	return err;
}
