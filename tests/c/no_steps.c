// SPDX-License-Identifier: Apache-2.0
/* The hook of a test that does nothing at steps, in a build with SB_TEST_HOOKS. It is weak: `units` has another one,
 * since some of its cases observe steps. */
void sb_test_step(const char *site);
__attribute__((weak)) void sb_test_step(const char *site) { (void)site; }
