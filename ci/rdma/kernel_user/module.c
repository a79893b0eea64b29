// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A user of RDMA inside the kernel, for tests: when it is loaded it connects two queue pairs of the first rnic device
 * to each other and plays all parts, looks at every byte, and goes to ERROR with work outstanding. Loading it
 * fails if anything was not as it should be, and the kernel log says what.
 */
#include "stage.h"

#include <linux/module.h>

static int outcome = -ENODEV;

static int play(struct stage *stage)
{
	int err;

	stage->pd = ib_alloc_pd(stage->device, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(stage->pd)) {
		err = PTR_ERR(stage->pd);
		stage->pd = NULL;
		pr_err("no protection domain: %d\n", err);
		return err;
	}
	stage->cq = ib_alloc_cq(stage->device, NULL, 4 * DEPTH, 0, IB_POLL_WORKQUEUE);
	if (IS_ERR(stage->cq)) {
		err = PTR_ERR(stage->cq);
		stage->cq = NULL;
		pr_err("no completion queue: %d\n", err);
		return err;
	}
	return open_pair(stage, stage->sides, stage->cq) ?: exchange_messages(stage) ?: moderate_events(stage) ?:
	       use_fast_regions(stage) ?: fail_outstanding(&stage->sides[0]) ?: fail_outstanding(&stage->sides[1]);
}

static void close_stage(struct stage *stage)
{
	close_pair(stage, stage->sides);
	if (stage->cq)
		ib_free_cq(stage->cq);
	if (stage->pd)
		ib_dealloc_pd(stage->pd);
}

static int add_device(struct ib_device *device)
{
	struct stage *stage;

	if (strncmp(dev_name(&device->dev), "rnic", 4))
		return -EOPNOTSUPP;
	stage = kzalloc(sizeof(*stage), GFP_KERNEL);
	if (!stage)
		return -ENOMEM;
	stage->device = device;
	outcome = play(stage);
	close_stage(stage);
	kfree(stage);
	return outcome;
}

static struct ib_client client = { .name = "rnic_kernel_user", .add = add_device };

static int __init kernel_user_init(void)
{
	int err = ib_register_client(&client);

	if (err)
		return err;
	if (outcome)
		ib_unregister_client(&client);
	return outcome;
}

static void __exit kernel_user_exit(void)
{
	ib_unregister_client(&client);
}

module_init(kernel_user_init);
module_exit(kernel_user_exit);
MODULE_DESCRIPTION("Test of rnic's verbs inside the kernel");
MODULE_LICENSE("Dual BSD/GPL");
