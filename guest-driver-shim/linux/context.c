// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Processes: their doorbell pages, and protection domains. */
#include "rnic.h"

int rnic_alloc_ucontext(struct ib_ucontext *ibcontext, struct ib_udata *udata)
{
	struct rnic_ucontext *context = to_rnic_ucontext(ibcontext);
	struct rnic_dev *dev = to_rnic(ibcontext->device);
	struct rnic_uresp_alloc_ucontext answer = {};
	struct rnic_mmap_entry *entry;
	int err;

	if (READ_ONCE(dev->dead))
		return -EIO;
	/* Page 0 is ours. */
	err = xa_alloc_cyclic(&dev->doorbell_pages, &context->doorbell_page, context,
			      XA_LIMIT(1, le32_to_cpu(dev->limits.doorbell_pages) - 1), &dev->next_page, GFP_KERNEL);
	if (err < 0)
		return err == -EBUSY ? -ENOMEM : err;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry) {
		err = -ENOMEM;
		goto give_back;
	}
	entry->address = dev->doorbells_at + (phys_addr_t)context->doorbell_page * RNIC_DOORBELL_PAGE_BYTES;
	err = rdma_user_mmap_entry_insert(ibcontext, &entry->rdma_entry, RNIC_DOORBELL_PAGE_BYTES);
	if (err) {
		kfree(entry);
		goto give_back;
	}
	context->doorbell = &entry->rdma_entry;
	answer.doorbell_offset = rdma_user_mmap_get_offset(context->doorbell);
	answer.doorbell_page = context->doorbell_page;
	answer.features = dev->features;
	answer.max_inline_bytes = le16_to_cpu(dev->limits.max_inline_bytes);
	answer.log_sq_slots = dev->limits.log_sq_slots;
	answer.log_rq_entries = dev->limits.log_rq_entries;
	answer.log_cq_entries = dev->limits.log_cq_entries;
	answer.max_send_sge = dev->limits.max_send_sge;
	answer.max_receive_sge = dev->limits.max_receive_sge;
	err = ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
	if (err)
		goto remove;
	return 0;

remove:
	rdma_user_mmap_entry_remove(context->doorbell);
give_back:
	xa_erase(&dev->doorbell_pages, context->doorbell_page);
	return err;
}

void rnic_dealloc_ucontext(struct ib_ucontext *ibcontext)
{
	struct rnic_ucontext *context = to_rnic_ucontext(ibcontext);

	rdma_user_mmap_entry_remove(context->doorbell);
	xa_erase(&to_rnic(ibcontext->device)->doorbell_pages, context->doorbell_page);
}

/* The core takes the mappings away; nothing of ours is left with the process. */
void rnic_disassociate_ucontext(struct ib_ucontext *ibcontext)
{
}

int rnic_mmap(struct ib_ucontext *ibcontext, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry = rdma_user_mmap_entry_get(ibcontext, vma);
	struct rnic_mmap_entry *ours;
	int err;

	if (!entry)
		return -EINVAL;
	ours = container_of(entry, struct rnic_mmap_entry, rdma_entry);
	err = rdma_user_mmap_io(ibcontext, vma, PHYS_PFN(ours->address), RNIC_DOORBELL_PAGE_BYTES,
				pgprot_writecombine(vma->vm_page_prot), entry);
	rdma_user_mmap_entry_put(entry);
	return err;
}

void rnic_mmap_free(struct rdma_user_mmap_entry *entry)
{
	kfree(container_of(entry, struct rnic_mmap_entry, rdma_entry));
}

/* A domain is a number that queue pairs and regions carry; the device is not told. */
int rnic_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibpd->device);
	struct rnic_uresp_alloc_pd answer = {};
	struct rnic_pd *pd = to_rnic_pd(ibpd);
	int err;

	err = xa_alloc_cyclic(&dev->pds, &pd->pdn, pd, XA_LIMIT(1, dev->max_pds), &dev->next_pdn, GFP_KERNEL);
	if (err < 0)
		return err == -EBUSY ? -ENOMEM : err;
	if (!udata)
		return 0;
	answer.pdn = pd->pdn;
	err = ib_copy_to_udata(udata, &answer, min(sizeof(answer), udata->outlen));
	if (err)
		xa_erase(&dev->pds, pd->pdn);
	return err;
}

int rnic_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	xa_erase(&to_rnic(ibpd->device)->pds, to_rnic_pd(ibpd)->pdn);
	return 0;
}

/* Likewise: of targets of extended connections, and of the shared receive queues that they may be asked for. */
int rnic_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct rnic_dev *dev = to_rnic(ibxrcd->device);
	struct rnic_xrcd *xrcd = to_rnic_xrcd(ibxrcd);
	int err = xa_alloc_cyclic(&dev->xrcds, &xrcd->xrcdn, xrcd, XA_LIMIT(1, dev->max_pds), &dev->next_xrcdn,
				  GFP_KERNEL);

	return err == -EBUSY ? -ENOMEM : min(err, 0);
}

int rnic_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	xa_erase(&to_rnic(ibxrcd->device)->xrcds, to_rnic_xrcd(ibxrcd)->xrcdn);
	return 0;
}
