// SPDX-License-Identifier: Apache-2.0
/* For a test that does nothing at steps, in a build with SB_TEST_HOOKS. Weak: the cases of `units` look at some of them. */
void sb_test_step(const char *site);
__attribute__((weak)) void sb_test_step(const char *site) { (void)site; }
