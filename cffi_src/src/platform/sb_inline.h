// SPDX-License-Identifier: Apache-2.0
/* Which functions the compiler inlines, where its own choice would slow the path of every message. */
#ifndef SB_INLINE_H
#define SB_INLINE_H

/* On the path of every message: inlined into its few callers, even where the compiler would not. */
#define SB_HOT static inline __attribute__((always_inline))
/* For a function that a hot function calls rarely: kept out of the code of the hot function. */
#define SB_COLD static __attribute__((noinline, cold))

#endif
