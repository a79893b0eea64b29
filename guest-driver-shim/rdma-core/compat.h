/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What differs between the releases of rdma-core that this provider is built for, 56 and 65: arguments that calls of its
 * private interface have from the later one on. RNIC_PABI is the number of that interface, 34 or 65.
 */
#ifndef RNIC_COMPAT_H
#define RNIC_COMPAT_H

#if RNIC_PABI >= 65
#define RNIC_SINCE_65(argument) argument,
#define RNIC_LAST_SINCE_65(argument) , argument
#else
#define RNIC_SINCE_65(argument)
#define RNIC_LAST_SINCE_65(argument)
#endif

#endif /* RNIC_COMPAT_H */
