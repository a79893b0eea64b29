// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Event queues and their interrupts. Queue 0 takes the asynchronous events, the others the completion events, one a
 * vector; with a single vector queue 0 takes all.
 *
 * Events are handled under the queue's lock. Whoever destroys an object that events name first lets the device destroy
 * it, then drains the queue, then takes the object out of the table, then takes the lock once more: after that no event
 * names it and no handler holds it.
 */
#include <linux/interrupt.h>

#include "rnic.h"

static void take_completion(struct rnic_dev *dev, u32 cqn)
{
	struct rnic_cq *cq = xa_load(&dev->cqs, cqn);

	if (!cq)
		return;
	/* The next arm is a new one. */
	WRITE_ONCE(cq->arm_sequence, (cq->arm_sequence + 1) & 3);
	if (cq->ibcq.comp_handler)
		cq->ibcq.comp_handler(&cq->ibcq, cq->ibcq.cq_context);
}

static void take_cq_error(struct rnic_dev *dev, u32 cqn, u32 diagnostic)
{
	struct ib_event event = { .device = &dev->ibdev, .event = IB_EVENT_CQ_ERR };
	struct rnic_cq *cq = xa_load(&dev->cqs, cqn);

	if (!cq)
		return;
	ibdev_dbg(&dev->ibdev, "CQ %u: %u, %s\n", cqn, diagnostic, rnic_diagnostic_sentence(diagnostic));
	event.element.cq = &cq->ibcq;
	if (cq->ibcq.event_handler)
		cq->ibcq.event_handler(&event, cq->ibcq.cq_context);
}

static void take_qp_event(struct rnic_dev *dev, enum ib_event_type type, u32 qpn, u32 diagnostic)
{
	struct ib_event event = { .device = &dev->ibdev, .event = type };
	struct rnic_qp *qp = xa_load(&dev->qps, qpn);

	if (!qp)
		return;
	if (diagnostic)
		ibdev_dbg(&dev->ibdev, "QP %u: %u, %s\n", qpn, diagnostic, rnic_diagnostic_sentence(diagnostic));
	event.element.qp = &qp->ibqp;
	if (qp->ibqp.event_handler)
		qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

static void take_srq_event(struct rnic_dev *dev, enum ib_event_type type, u32 srqn, u32 diagnostic)
{
	struct ib_event event = { .device = &dev->ibdev, .event = type };
	struct rnic_srq *srq = xa_load(&dev->srqs, srqn);

	if (!srq)
		return;
	if (diagnostic)
		ibdev_dbg(&dev->ibdev, "SRQ %u: %u, %s\n", srqn, diagnostic, rnic_diagnostic_sentence(diagnostic));
	event.element.srq = &srq->ibsrq;
	if (srq->ibsrq.event_handler)
		srq->ibsrq.event_handler(&event, srq->ibsrq.srq_context);
}

static void take(struct rnic_dev *dev, const struct rnic_eqe *eqe)
{
	u32 object = le32_to_cpu(eqe->object), data = le32_to_cpu(eqe->data);

	switch (eqe->event_type) {
	case RNIC_EVENT_COMPLETION:
		take_completion(dev, object);
		break;
	case RNIC_EVENT_CQ_ERR:
		take_cq_error(dev, object, data);
		break;
	case RNIC_EVENT_QP_FATAL:
		take_qp_event(dev, IB_EVENT_QP_FATAL, object, data);
		break;
	case RNIC_EVENT_QP_REQ_ERR:
		take_qp_event(dev, IB_EVENT_QP_REQ_ERR, object, data);
		break;
	case RNIC_EVENT_QP_ACCESS_ERR:
		take_qp_event(dev, IB_EVENT_QP_ACCESS_ERR, object, data);
		break;
	case RNIC_EVENT_COMM_EST:
		take_qp_event(dev, IB_EVENT_COMM_EST, object, 0);
		break;
	case RNIC_EVENT_SQ_DRAINED:
		take_qp_event(dev, IB_EVENT_SQ_DRAINED, object, 0);
		break;
	case RNIC_EVENT_QP_LAST_WQE_REACHED:
		take_qp_event(dev, IB_EVENT_QP_LAST_WQE_REACHED, object, 0);
		break;
	case RNIC_EVENT_SRQ_ERR:
		take_srq_event(dev, IB_EVENT_SRQ_ERR, object, data);
		break;
	case RNIC_EVENT_SRQ_LIMIT_REACHED:
		take_srq_event(dev, IB_EVENT_SRQ_LIMIT_REACHED, object, 0);
		break;
	default:
		break;
	}
}

static void update(struct rnic_eq *eq, bool arm)
{
	u64 value = (u64)eq->consumer << 32 | eq->eqn << 8 | (arm ? RNIC_EQ_UPDATE_ARM : 0);

	writeq(value, eq->dev->doorbells + RNIC_DB_EQ_UPDATE);
}

/* Takes what is there and asks to be told of the next. */
void rnic_eq_drain(struct rnic_eq *eq)
{
	u32 mask = BIT(eq->log_entries) - 1;
	const struct rnic_eqe *ring = eq->ring.cpu;
	const struct rnic_eqe *eqe;
	unsigned long flags;

	spin_lock_irqsave(&eq->lock, flags);
	for (;;) {
		eqe = &ring[eq->consumer & mask];
		if ((le32_to_cpu(READ_ONCE(eqe->phase)) & RNIC_EQE_PHASE) !=
		    rnic_phase(eq->consumer, eq->log_entries))
			break;
		/* The phase was read first; the rest is not older. */
		dma_rmb();
		take(eq->dev, eqe);
		eq->consumer++;
	}
	if (!READ_ONCE(eq->dev->dead))
		update(eq, true);
	spin_unlock_irqrestore(&eq->lock, flags);
}

static irqreturn_t interrupt(int irq, void *data)
{
	rnic_eq_drain(data);
	return IRQ_HANDLED;
}

struct rnic_eq *rnic_completion_eq(struct rnic_dev *dev, u32 vector)
{
	return dev->eq_count > 1 ? &dev->eqs[1 + vector % (dev->eq_count - 1)] : &dev->eqs[0];
}

/* One entry a completion queue, three a queue pair, two a shared receive queue, and some in reserve. */
static u8 log_entries(struct rnic_dev *dev, u32 eqn)
{
	u32 cqs = BIT(dev->log_cqs), qps = BIT(dev->log_qps), entries = 64;

	if (eqn == RNIC_ASYNC_EQN)
		entries += 3 * qps + (2 << dev->log_srqs);
	if (eqn != RNIC_ASYNC_EQN || dev->eq_count == 1)
		entries += 2 * cqs;
	return min_t(u32, order_base_2(entries), dev->limits.log_eq_entries);
}

static int create(struct rnic_dev *dev, struct rnic_eq *eq, u32 eqn)
{
	struct rnic_create_eq body = {};
	int err;

	eq->dev = dev;
	eq->eqn = eqn;
	spin_lock_init(&eq->lock);
	eq->log_entries = log_entries(dev, eqn);
	err = rnic_dma_alloc(dev, &eq->ring, sizeof(struct rnic_eqe) << eq->log_entries);
	if (err)
		return err;
	eq->irq = pci_irq_vector(dev->pdev, eqn);
	snprintf(eq->name, sizeof(eq->name), RNIC_NAME "-%s-%u", eqn ? "comp" : "async", eqn);
	err = request_irq(eq->irq, interrupt, 0, eq->name, eq);
	if (err) {
		eq->irq = 0;
		return err;
	}
	body.eqn = cpu_to_le32(eqn);
	body.vector = cpu_to_le16(eqn);
	body.log_entries = eq->log_entries;
	body.pages = rnic_one_run(eq->ring.iova);
	err = rnic_command(dev, RNIC_COMMAND_OPCODE_CREATE_EQ, &body, sizeof(body), NULL, 0);
	if (err)
		return err;
	eq->created = true;
	rnic_eq_drain(eq);
	return 0;
}

int rnic_events_start(struct rnic_dev *dev)
{
	int wanted = 1 + min_t(int, num_online_cpus(), RNIC_MAX_COMPLETION_EQS), got, err;
	unsigned int eqn;

	wanted = min3(wanted, (int)le16_to_cpu(dev->limits.vectors), (int)le16_to_cpu(dev->limits.max_eqs));
	got = pci_alloc_irq_vectors(dev->pdev, 1, wanted, PCI_IRQ_MSIX);
	if (got < 0)
		return got;
	dev->vectors = got;
	dev->eqs = kcalloc(got, sizeof(*dev->eqs), GFP_KERNEL);
	if (!dev->eqs)
		return -ENOMEM;
	dev->eq_count = got;
	for (eqn = 0; eqn < dev->eq_count; eqn++) {
		err = create(dev, &dev->eqs[eqn], eqn);
		if (err)
			return err;
	}
	return 0;
}

/* Undoes as much as was done. The device keeps the rings' memory until it is told, or reset. */
void rnic_events_stop(struct rnic_dev *dev)
{
	unsigned int eqn;
	struct rnic_eq *eq;

	for (eqn = dev->eq_count; eqn-- > 0;) {
		eq = &dev->eqs[eqn];
		if (eq->created)
			rnic_command_destroy(dev, RNIC_COMMAND_OPCODE_DESTROY_EQ, eqn);
		if (eq->irq)
			free_irq(eq->irq, eq);
		rnic_dma_free(dev, &eq->ring);
	}
	kfree(dev->eqs);
	dev->eqs = NULL;
	dev->eq_count = 0;
	if (dev->vectors)
		pci_free_irq_vectors(dev->pdev);
	dev->vectors = 0;
}
