// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Faults on purpose: what a kernel that looks for faults has to find, or its silence about the driver says nothing.
 * Loading the module does what its parameter says, once.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>

static char *fault = "";
module_param(fault, charp, 0444);
MODULE_PARM_DESC(fault, "memory, locks, leak or dma");

#define BYTES 200

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

/* A byte that was given back. The compiler must not see that it was. */
static int use_memory(void)
{
	u8 *bytes = kmalloc(BYTES, GFP_KERNEL);

	if (!bytes)
		return -ENOMEM;
	kfree(bytes);
	OPTIMIZER_HIDE_VAR(bytes);
	WRITE_ONCE(bytes[BYTES / 2], 1);
	return 0;
}

/* One after the other and the other way round: two who did so at the same time would wait for ever. */
static int take_locks(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
	return 0;
}

/* Many, since a pointer to one may still lie in a register or on a stack. */
static int leak_memory(void)
{
	int at;

	for (at = 0; at < 16; at++) {
		void *bytes = kmalloc(BYTES, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(bytes);
	}
	return 0;
}

/* Mapped for the device, and let go with another size. */
static int map_for_device(void)
{
	struct pci_dev *pdev = pci_get_domain_bus_and_slot(0, 1, PCI_DEVFN(0, 0));
	dma_addr_t address;
	void *bytes;

	if (!pdev)
		return -ENODEV;
	bytes = kmalloc(BYTES, GFP_KERNEL);
	address = bytes ? dma_map_single(&pdev->dev, bytes, BYTES, DMA_TO_DEVICE) : DMA_MAPPING_ERROR;
	if (bytes && !dma_mapping_error(&pdev->dev, address))
		dma_unmap_single(&pdev->dev, address, BYTES / 2, DMA_TO_DEVICE);
	kfree(bytes);
	pci_dev_put(pdev);
	return 0;
}

static int __init kernel_faults_init(void)
{
	if (!strcmp(fault, "memory"))
		return use_memory();
	if (!strcmp(fault, "locks"))
		return take_locks();
	if (!strcmp(fault, "leak"))
		return leak_memory();
	if (!strcmp(fault, "dma"))
		return map_for_device();
	return -EINVAL;
}

static void __exit kernel_faults_exit(void)
{
}

module_init(kernel_faults_init);
module_exit(kernel_faults_exit);
MODULE_DESCRIPTION("Faults that a kernel which looks for faults has to find");
MODULE_LICENSE("Dual BSD/GPL");
