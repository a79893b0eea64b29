// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The driver's beginning and end: a PCI function becomes an RDMA device, and goes again. */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <net/addrconf.h>

#include "rnic.h"

static unsigned int log_qps = 12, log_cqs = 12, log_srqs = 10, log_keys = 14;
module_param(log_qps, uint, 0444);
MODULE_PARM_DESC(log_qps, "log2 of the queue pair numbers, 4 to 17 [12]");
module_param(log_cqs, uint, 0444);
MODULE_PARM_DESC(log_cqs, "log2 of the completion queue numbers, 4 to 17 [12]");
module_param(log_srqs, uint, 0444);
MODULE_PARM_DESC(log_srqs, "log2 of the shared receive queue numbers, 4 to 16 [10]");
module_param(log_keys, uint, 0444);
MODULE_PARM_DESC(log_keys, "log2 of the memory regions, 4 to 20 [14]");

static int map(struct rnic_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	if (pci_resource_len(pdev, RNIC_BAR_REGISTERS) < RNIC_REGISTERS_BYTES ||
	    pci_resource_len(pdev, RNIC_BAR_DOORBELLS) < RNIC_DOORBELL_PAGE_BYTES)
		return -ENODEV;
	err = pcim_request_all_regions(pdev, RNIC_NAME);
	if (err)
		return err;
	dev->registers = pcim_iomap(pdev, RNIC_BAR_REGISTERS, RNIC_REGISTERS_BYTES);
	dev->doorbells_at = pci_resource_start(pdev, RNIC_BAR_DOORBELLS);
	dev->doorbells = pcim_iomap(pdev, RNIC_BAR_DOORBELLS, RNIC_DOORBELL_PAGE_BYTES);
	return dev->registers && dev->doorbells ? 0 : -ENOMEM;
}

static int identify(struct rnic_dev *dev)
{
	u32 magic = rnic_read(dev, RNIC_REG_MAGIC);
	u64 mac;
	int at;

	if (magic != RNIC_MAGIC) {
		dev_err(&dev->pdev->dev, "this is no rnic: magic %#x\n", magic);
		return -ENODEV;
	}
	dev->version = rnic_read(dev, RNIC_REG_VERSION);
	if (dev->version >> 16 != RNIC_ABI_VERSION_MAJOR) {
		dev_err(&dev->pdev->dev, "the hardware interface is of version %u.%u, this driver knows %u\n",
			dev->version >> 16, dev->version & 0xffff, RNIC_ABI_VERSION_MAJOR);
		return -ENODEV;
	}
	dev->features = readq(dev->registers + RNIC_REG_FEATURES);
	dev->port_mtu = rnic_read(dev, RNIC_REG_PORT_MTU);
	mac = readq(dev->registers + RNIC_REG_MAC);
	for (at = 0; at < ETH_ALEN; at++)
		dev->mac[at] = mac >> (8 * at);
	return 0;
}

static int query_limits(struct rnic_dev *dev)
{
	struct rnic_device_limits *limits = &dev->limits;
	int err = rnic_command(dev, RNIC_COMMAND_OPCODE_QUERY_DEVICE, NULL, 0, limits, sizeof(*limits));

	if (err)
		return err;
	dev->log_qps = clamp_t(unsigned int, log_qps, 4, limits->log_qps);
	dev->log_cqs = clamp_t(unsigned int, log_cqs, 4, limits->log_cqs);
	if (limits->srq_context_bytes)
		dev->log_srqs = clamp_t(unsigned int, log_srqs, 4, limits->log_srqs);
	dev->log_keys = clamp_t(unsigned int, log_keys, 4, limits->log_keys);
	dev->max_pds = BIT(dev->log_keys);
	if (limits->log_sq_slots < 2 || limits->log_sq_slots > RNIC_MAX_LOG_SQ_SLOTS ||
	    limits->log_rq_entries > RNIC_MAX_LOG_RQ_ENTRIES || limits->log_cq_entries > RNIC_MAX_LOG_CQ_ENTRIES ||
	    limits->max_send_sge > RNIC_MAX_SEND_SGE || limits->max_receive_sge > RNIC_MAX_RECEIVE_SGE ||
	    le16_to_cpu(limits->max_inline_bytes) > RNIC_MAX_INLINE_BYTES || le32_to_cpu(limits->doorbell_pages) < 2 ||
	    ((u64)le32_to_cpu(limits->doorbell_pages) * RNIC_DOORBELL_PAGE_BYTES >
	     pci_resource_len(dev->pdev, RNIC_BAR_DOORBELLS))) {
		dev_err(&dev->pdev->dev, "the device's limits are beyond what this driver knows\n");
		return -ENODEV;
	}
	return 0;
}

static int bring_up(struct rnic_dev *dev)
{
	int err;

	err = rnic_commands_start(dev);
	if (err)
		return dev_err_probe(&dev->pdev->dev, err, "the command queue does not start\n");
	err = query_limits(dev);
	if (!err)
		err = rnic_tables_create(dev);
	if (!err)
		err = rnic_events_start(dev);
	if (!err)
		return 0;
	rnic_events_stop(dev);
	rnic_commands_stop(dev);
	rnic_tables_destroy(dev);
	return dev_err_probe(&dev->pdev->dev, err, "the device does not come up\n");
}

/* What the device holds goes first, then the device is reset, then memory that it might still have touched. */
static void tear_down(struct rnic_dev *dev)
{
	rnic_events_stop(dev);
	rnic_commands_stop(dev);
	rnic_tables_destroy(dev);
}

static int register_rdma(struct rnic_dev *dev)
{
	struct ib_device *ibdev = &dev->ibdev;
	int err;

	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = max_t(int, dev->eq_count - 1, 1);
	ibdev->dev.parent = &dev->pdev->dev;
	if (dev->features & RNIC_FEATURE_LOCAL_DMA_KEY)
		ibdev->local_dma_lkey = le32_to_cpu(dev->limits.local_dma_key);
	addrconf_addr_eui48((u8 *)&ibdev->node_guid, dev->mac);
	rnic_set_operations(dev);
	err = rnic_netdev_start(dev);
	if (err)
		return err;
	err = ib_register_device(ibdev, RNIC_NAME "%d", &dev->pdev->dev);
	if (err) {
		rnic_netdev_stop(dev);
		return err;
	}
	WRITE_ONCE(dev->registered, true);
	/* A network device that came meanwhile. */
	rdma_roce_rescan_device(ibdev);
	return 0;
}

static void init_numbers(struct rnic_dev *dev)
{
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->cqs, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->srqs, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->keys, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->pds, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->xrcds, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->doorbell_pages, XA_FLAGS_ALLOC);
}

static int rnic_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct rnic_dev *dev = ib_alloc_device(rnic_dev, ibdev);
	int err;

	if (!dev)
		return -ENOMEM;
	dev->pdev = pdev;
	init_numbers(dev);
	err = map(dev);
	if (!err)
		err = identify(dev);
	if (err)
		goto dealloc;
	pci_set_master(pdev);
	err = bring_up(dev);
	if (err)
		goto clear_master;
	pci_set_drvdata(pdev, dev);
	err = register_rdma(dev);
	if (err)
		goto down;
	dev_info(&pdev->dev, "%s, hardware interface %u.%u, MAC %pM, %u vectors\n", dev_name(&dev->ibdev.dev),
		 dev->version >> 16, dev->version & 0xffff, dev->mac, dev->eq_count);
	return 0;

down:
	pci_set_drvdata(pdev, NULL);
	tear_down(dev);
clear_master:
	pci_clear_master(pdev);
dealloc:
	ib_dealloc_device(&dev->ibdev);
	return err;
}

static void rnic_remove(struct pci_dev *pdev)
{
	struct rnic_dev *dev = pci_get_drvdata(pdev);

	if (!pci_device_is_present(pdev))
		rnic_mark_dead(dev, "it was removed");
	rnic_netdev_stop(dev);
	WRITE_ONCE(dev->registered, false);
	ib_unregister_device(&dev->ibdev);
	tear_down(dev);
	pci_clear_master(pdev);
	ib_dealloc_device(&dev->ibdev);
}

/* A reset of the function takes all that the device knew; the driver has to be bound anew. */
static void rnic_reset_prepare(struct pci_dev *pdev)
{
	struct rnic_dev *dev = pci_get_drvdata(pdev);

	if (dev)
		rnic_mark_dead(dev, "the function is being reset; unbind and bind the driver");
}

static pci_ers_result_t rnic_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct rnic_dev *dev = pci_get_drvdata(pdev);

	if (dev)
		rnic_mark_dead(dev, "the PCIe link reported an error");
	return PCI_ERS_RESULT_DISCONNECT;
}

static const struct pci_error_handlers rnic_error_handlers = {
	.reset_prepare = rnic_reset_prepare,
	.error_detected = rnic_error_detected,
};

static const struct pci_device_id rnic_ids[] = {
	{ PCI_DEVICE(RNIC_PCI_VENDOR_ID, RNIC_PCI_DEVICE_ID) },
	{}
};
MODULE_DEVICE_TABLE(pci, rnic_ids);

static struct pci_driver rnic_driver = {
	.name = RNIC_NAME,
	.id_table = rnic_ids,
	.probe = rnic_probe,
	.remove = rnic_remove,
	.err_handler = &rnic_error_handlers,
};
module_pci_driver(rnic_driver);

MODULE_DESCRIPTION("rnic RoCEv2 adapter");
MODULE_LICENSE("Dual BSD/GPL");
