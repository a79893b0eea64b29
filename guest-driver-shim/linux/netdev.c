// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The network device of the port: the one with the adapter's MAC address, on whatever function or bus it is. The RDMA
 * core makes the GID table from its addresses. It may come before us, after us, or not at all.
 */
#include <linux/rtnetlink.h>

#include "rnic.h"

/* VLANs, bridges and bonds share the address of the device below them, but no hardware stands behind them. */
static bool is_ours(struct rnic_dev *dev, struct net_device *ndev)
{
	return ndev->dev.parent && ndev->type == ARPHRD_ETHER &&
	       (ether_addr_equal(ndev->dev_addr, dev->mac) || ether_addr_equal(ndev->perm_addr, dev->mac));
}

static bool is_attached(struct rnic_dev *dev, struct net_device *ndev)
{
	struct net_device *attached = ib_device_get_netdev(&dev->ibdev, RNIC_PORT);
	bool same = attached == ndev;

	dev_put(attached);
	return same;
}

static void attach(struct rnic_dev *dev, struct net_device *ndev)
{
	struct net_device *attached = ib_device_get_netdev(&dev->ibdev, RNIC_PORT);

	dev_put(attached);
	if (attached || ib_device_set_netdev(&dev->ibdev, ndev, RNIC_PORT))
		return;
	dev_info(&dev->pdev->dev, "the port's network device is %s\n", netdev_name(ndev));
	if (READ_ONCE(dev->registered))
		queue_work(system_long_wq, &dev->rescan);
}

static void rescan(struct work_struct *work)
{
	struct rnic_dev *dev = container_of(work, struct rnic_dev, rescan);

	rdma_roce_rescan_device(&dev->ibdev);
}

static void tell(struct rnic_dev *dev, struct net_device *ndev)
{
#ifndef RNIC_CORE_TELLS_PORT_EVENTS
	struct ib_event event = { .device = &dev->ibdev, .element.port_num = RNIC_PORT };

	if (!READ_ONCE(dev->registered))
		return;
	event.event = netif_running(ndev) && netif_carrier_ok(ndev) ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
	ib_dispatch_event(&event);
#endif
}

static int on_netdev_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct rnic_dev *dev = container_of(block, struct rnic_dev, netdev_notifier);
	struct net_device *ndev = netdev_notifier_info_to_dev(data);

	switch (event) {
	case NETDEV_REGISTER:
	case NETDEV_CHANGEADDR:
		if (is_ours(dev, ndev))
			attach(dev, ndev);
		break;
	case NETDEV_UNREGISTER:
		if (is_attached(dev, ndev))
			ib_device_set_netdev(&dev->ibdev, NULL, RNIC_PORT);
		break;
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		if (is_attached(dev, ndev))
			tell(dev, ndev);
		break;
	default:
		break;
	}
	return NOTIFY_DONE;
}

/* Also hears of the devices that are there already. */
int rnic_netdev_start(struct rnic_dev *dev)
{
	INIT_WORK(&dev->rescan, rescan);
	dev->netdev_notifier.notifier_call = on_netdev_event;
	return register_netdevice_notifier(&dev->netdev_notifier);
}

/* Also hears the present devices' end, and so lets the attached one go. */
void rnic_netdev_stop(struct rnic_dev *dev)
{
	unregister_netdevice_notifier(&dev->netdev_notifier);
	cancel_work_sync(&dev->rescan);
}
