/* SPDX-License-Identifier: Apache-2.0
 *
 * What the models share: fate. Before each step that touches shared memory a process may be killed, or stopped for good
 * (SIGSTOP without SIGCONT). A stop that ends is a long delay, which the interleavings contain anyway.
 *
 * A process jumps to its label `dead` or `halted`; both forget its local variables, so that runs that differ only in
 * what nobody reads any more are one run. What is written to a process's own line before the word that announces it
 * (holdings, intents) is one step: its reader looks only after the death, and not at all while the word says "nothing".
 */
#ifndef KILLS
#define KILLS 0
#endif
#ifndef STOPS
#define STOPS 0
#endif

byte kills, stops;

#if KILLS > 0 && STOPS > 0
#define FATE                                            \
  if                                                    \
  :: true                                               \
  :: kills < KILLS -> kills++; goto dead                \
  :: stops < STOPS -> stops++; goto halted              \
  fi
#elif KILLS > 0
#define FATE                                            \
  if                                                    \
  :: true                                               \
  :: kills < KILLS -> kills++; goto dead                \
  fi
#elif STOPS > 0
#define FATE                                            \
  if                                                    \
  :: true                                               \
  :: stops < STOPS -> stops++; goto halted              \
  fi
#else
#define FATE skip
#endif
