// SPDX-License-Identifier: Apache-2.0
/* For a test that does nothing at steps, in a build with SB_TEST_HOOKS. */
void sb_test_step(const char *site);
void sb_test_step(const char *site) { (void)site; }
