// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Posting of receives by kernel users. */
#include "rnic.h"

/* A receive WQE: its elements, and nothing behind them. */
void rnic_put_receive(struct rnic_data_segment *data, u8 log_stride, const struct ib_recv_wr *wr)
{
	int index;

	memset(data, 0, RNIC_WQE_SEGMENT_BYTES << log_stride);
	for (index = 0; index < wr->num_sge; index++) {
		/* An element of no bytes would end the list. */
		if (!wr->sg_list[index].length)
			continue;
		data->address = cpu_to_le64(wr->sg_list[index].addr);
		data->length_bytes = cpu_to_le32(wr->sg_list[index].length);
		data->lkey = cpu_to_le32(wr->sg_list[index].lkey);
		data++;
	}
}

static int post_one(struct rnic_work_queue *queue, const struct ib_recv_wr *wr)
{
	u32 at;

	if (wr->num_sge > queue->max_sge)
		return -EINVAL;
	if (!rnic_room(queue))
		return -ENOMEM;
	at = rnic_position(queue, queue->producer);
	rnic_put_receive(queue->ring + (((size_t)at * RNIC_WQE_SEGMENT_BYTES) << queue->log_stride), queue->log_stride,
			 wr);
	queue->wr_ids[at] = wr->wr_id;
	queue->producer++;
	return 0;
}

int rnic_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct rnic_qp *qp = to_rnic_qp(ibqp);
	unsigned long flags;
	u16 before;
	int err = 0;

	if (ibqp->srq) {
		*bad = wr;
		return -EINVAL;
	}
	spin_lock_irqsave(&qp->rq.lock, flags);
	before = qp->rq.producer;
	for (; wr; wr = wr->next) {
		err = post_one(&qp->rq, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	if (qp->rq.producer != before)
		rnic_ring_doorbell(qp, RNIC_DB_RECEIVE, qp->rq.producer);
	spin_unlock_irqrestore(&qp->rq.lock, flags);
	return err;
}
