// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The command queue: one command at a time, its completion polled.
 *
 * Commands take some tens of microseconds, so the waiter spins for a moment before it sleeps. A device that does not
 * answer within the limit is taken for dead, for good: what belongs to it is then let go without asking it.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>

#include "rnic.h"

#define LOG_SLOTS 5
#define ANSWER_LIMIT (60 * HZ)
#define ENABLE_LIMIT (10 * HZ)
#define SPINS 500
/* How often a waiter looks whether there still is a device. */
#define LOOK_EVERY (HZ / 20 ? HZ / 20 : 1)

static const struct {
	u32 number;
	const char *sentence;
} diagnostics[] = {
#define DIAGNOSTIC(value, name, text) { .number = value, .sentence = text },
	RNIC_DIAGNOSTICS(DIAGNOSTIC)
#undef DIAGNOSTIC
};

const char *rnic_diagnostic_sentence(u32 number)
{
	unsigned int at;

	for (at = 0; at < ARRAY_SIZE(diagnostics); at++)
		if (diagnostics[at].number == number)
			return diagnostics[at].sentence;
	return "a rule that this driver does not know";
}

void rnic_mark_dead(struct rnic_dev *dev, const char *why)
{
	struct ib_event event = { .device = &dev->ibdev, .event = IB_EVENT_DEVICE_FATAL };

	if (xchg(&dev->dead, true))
		return;
	dev_err(&dev->pdev->dev, "the device is given up: %s\n", why);
	/* If it is still there it is reset, so that it touches none of the memory that is let go from now on. */
	rnic_write(dev, RNIC_REG_CONTROL, 0);
	event.element.port_num = RNIC_PORT;
	if (READ_ONCE(dev->registered))
		ib_dispatch_event(&event);
}

static int set_enabled(struct rnic_dev *dev, bool enabled)
{
	unsigned long end = jiffies + ENABLE_LIMIT;
	u32 status;

	rnic_write(dev, RNIC_REG_CONTROL, enabled ? RNIC_CONTROL_ENABLE : 0);
	for (;;) {
		status = rnic_read(dev, RNIC_REG_STATUS);
		if (status == U32_MAX)
			return -ENODEV;
		if (!!(status & RNIC_STATUS_ENABLED) == enabled)
			return 0;
		if (time_after(jiffies, end))
			return -ETIMEDOUT;
		usleep_range(50, 200);
	}
}

int rnic_commands_start(struct rnic_dev *dev)
{
	struct rnic_command_queue *queue = &dev->commands;
	int err;

	mutex_init(&queue->lock);
	queue->log_slots = LOG_SLOTS;
	err = rnic_dma_alloc(dev, &queue->ring, (size_t)RNIC_COMMAND_BYTES << LOG_SLOTS);
	if (err)
		return err;
	err = rnic_dma_alloc(dev, &queue->completions, (size_t)RNIC_COMMAND_BYTES << LOG_SLOTS);
	if (err)
		goto free_ring;
	/* Whatever was before: a fresh device. */
	err = set_enabled(dev, false);
	if (err)
		goto free_completions;
	writeq(queue->ring.iova, dev->registers + RNIC_REG_COMMAND_RING);
	writeq(queue->completions.iova, dev->registers + RNIC_REG_COMMAND_COMPLETION_RING);
	rnic_write(dev, RNIC_REG_COMMAND_RING_LOG_SLOTS, LOG_SLOTS);
	err = set_enabled(dev, true);
	if (err)
		goto free_completions;
	return 0;

free_completions:
	rnic_dma_free(dev, &queue->completions);
free_ring:
	rnic_dma_free(dev, &queue->ring);
	return err;
}

/* Resets the device: from here on it touches no memory of ours. */
void rnic_commands_stop(struct rnic_dev *dev)
{
	set_enabled(dev, false);
	rnic_dma_free(dev, &dev->commands.completions);
	rnic_dma_free(dev, &dev->commands.ring);
	mutex_destroy(&dev->commands.lock);
}

static int await(struct rnic_dev *dev, const __le32 *last, u32 phase)
{
	unsigned long end = jiffies + ANSWER_LIMIT, look = jiffies + LOOK_EVERY;
	unsigned int spins = 0;
	u32 status;

	while ((le32_to_cpu(READ_ONCE(*last)) & RNIC_COMMAND_PHASE) != phase) {
		if (READ_ONCE(dev->dead))
			return -EIO;
		if (spins++ < SPINS) {
			cpu_relax();
			continue;
		}
		usleep_range(20, 100);
		if (time_before(jiffies, look))
			continue;
		look = jiffies + LOOK_EVERY;
		status = rnic_read(dev, RNIC_REG_STATUS);
		if (status == U32_MAX) {
			rnic_mark_dead(dev, "it does not answer register reads");
			return -EIO;
		}
		if (!(status & RNIC_STATUS_ENABLED) || (status & RNIC_STATUS_FATAL)) {
			rnic_mark_dead(dev, "it was reset or has stopped");
			return -EIO;
		}
		if (time_after(jiffies, end)) {
			rnic_mark_dead(dev, "a command was not answered");
			return -EIO;
		}
	}
	/* The phase was read first; the rest is not older. */
	dma_rmb();
	return 0;
}

static int error_of(u8 status)
{
	switch (status) {
	case RNIC_COMMAND_STATUS_OK:
		return 0;
	case RNIC_COMMAND_STATUS_BAD_OPCODE:
		return -EOPNOTSUPP;
	case RNIC_COMMAND_STATUS_NO_SUCH_OBJECT:
		return -ENOENT;
	case RNIC_COMMAND_STATUS_EXISTS:
		return -EEXIST;
	case RNIC_COMMAND_STATUS_BAD_STATE:
		return -EBUSY;
	case RNIC_COMMAND_STATUS_NO_RESOURCES:
		return -ENOMEM;
	case RNIC_COMMAND_STATUS_DMA_FAULT:
		return -EFAULT;
	default:
		return -EINVAL;
	}
}

/* Carries out one command; a refusal is an error number, and its reason is in the kernel log. */
int rnic_command(struct rnic_dev *dev, u8 opcode, const void *body, size_t body_bytes, void *answer,
		 size_t answer_bytes)
{
	struct rnic_command_queue *queue = &dev->commands;
	struct rnic_completion_header completion;
	struct rnic_command_header header = {};
	u32 mask = BIT(queue->log_slots) - 1;
	u16 index;
	u8 *slot, *done;
	int err;

	if (WARN_ON_ONCE(sizeof(header) + body_bytes > RNIC_COMMAND_BYTES ||
			 sizeof(completion) + answer_bytes > RNIC_COMMAND_BYTES))
		return -EINVAL;
	mutex_lock(&queue->lock);
	err = -EIO;
	if (READ_ONCE(dev->dead))
		goto unlock;
	index = queue->next;
	slot = queue->ring.cpu + (size_t)(index & mask) * RNIC_COMMAND_BYTES;
	done = queue->completions.cpu + (size_t)(index & mask) * RNIC_COMMAND_BYTES;
	header.opcode = opcode;
	header.token = cpu_to_le32(++queue->token);
	memset(slot, 0, RNIC_COMMAND_BYTES);
	memcpy(slot, &header, sizeof(header));
	memcpy(slot + sizeof(header), body, body_bytes);
	queue->next = index + 1;
	/* writel orders the slot before the doorbell. */
	rnic_write(dev, RNIC_REG_COMMAND_DOORBELL, queue->next);
	err = await(dev, (__le32 *)(done + RNIC_COMMAND_BYTES - sizeof(__le32)),
		    rnic_phase(index, queue->log_slots));
	if (err)
		goto unlock;
	memcpy(&completion, done, sizeof(completion));
	if (completion.token != header.token || completion.opcode != opcode) {
		rnic_mark_dead(dev, "it answered another command");
		err = -EIO;
		goto unlock;
	}
	err = error_of(completion.status);
	if (!err && answer_bytes)
		memcpy(answer, done + sizeof(completion), answer_bytes);
	if (err)
		dev_dbg(&dev->pdev->dev, "command %#x is refused (%d): %u, %s\n", opcode, completion.status,
			le32_to_cpu(completion.diagnostic),
			rnic_diagnostic_sentence(le32_to_cpu(completion.diagnostic)));
unlock:
	mutex_unlock(&queue->lock);
	return err;
}

/* Destroys an object. A dead device has none, so this succeeds. */
int rnic_command_destroy(struct rnic_dev *dev, u8 opcode, u32 number)
{
	struct rnic_object_number object = { .number = cpu_to_le32(number) };
	int err = rnic_command(dev, opcode, &object, sizeof(object), NULL, 0);

	return READ_ONCE(dev->dead) ? 0 : err;
}
