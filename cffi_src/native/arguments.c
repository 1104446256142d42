// SPDX-License-Identifier: Apache-2.0
/* Checks of the number of arguments and of timeouts, and the names of keywords, for all types. See native_message.h. */
#include "native_message.h"

#include <time.h>

#define FOR_EVER 1000000000 /* seconds; a wait of so many or more has no deadline */

int sb_expect(Py_ssize_t count, Py_ssize_t wanted) {
  if (count != wanted) PyErr_Format(PyExc_TypeError, "%zd arguments are needed, %zd were given", wanted, count);
  return count == wanted;
}

PyObject *sb_good_timeout;

int sb_is_timeout(PyObject *timeout) {
  bool good = timeout == Py_None;
  if (PyLong_CheckExact(timeout) || (PyLong_Check(timeout) && !PyBool_Check(timeout))) {
    int beyond;
    good = PyLong_AsLongAndOverflow(timeout, &beyond) >= 0 || beyond > 0;
  } else if (PyFloat_Check(timeout)) {
    good = PyFloat_AsDouble(timeout) >= 0;
  }
  if (!good) {
    PyErr_Format(PyExc_ValueError, "timeout=%R: seconds >= 0, or None to wait for ever, are allowed", timeout);
  } else if (PyLong_CheckExact(timeout) || PyFloat_CheckExact(timeout)) {
    PyObject *before = sb_good_timeout;
    sb_good_timeout = Py_NewRef(timeout);
    Py_XDECREF(before);
  }
  return good;
}

uint64_t sb_clock_ns(void) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  return (uint64_t)clock.tv_sec * UINT64_C(1000000000) + (uint64_t)clock.tv_nsec;
}

/* The seconds of a good timeout; None and an int that is too large are as many as any wait can last. A subclass of int
 * or float has its own methods, which are not asked. */
static double seconds_of(PyObject *timeout) {
  if (PyFloat_Check(timeout)) {
    return PyFloat_AsDouble(timeout);
  }
  int beyond = 0;
  long long seconds = timeout != Py_None ? PyLong_AsLongLongAndOverflow(timeout, &beyond) : 0;
  return timeout == Py_None || beyond != 0 ? (double)FOR_EVER : (double)seconds;
}

bool sb_is_zero(PyObject *timeout) { return seconds_of(timeout) <= 0; }

uint64_t sb_deadline_of(PyObject *timeout) {
  double seconds = seconds_of(timeout);
  return seconds < (double)FOR_EVER ? sb_clock_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX;
}

bool sb_intern(const char *const *texts, PyObject **names, int count) {
  for (int i = 0; i < count; i++) {
    names[i] = PyUnicode_InternFromString(texts[i]);
    if (names[i] == NULL) return false;
  }
  return true;
}

int sb_index_of(PyObject *name, PyObject *const *names, int count) {
  for (int i = 0; i < count; i++) { /* most callers pass the very object */
    if (name == names[i]) return i;
  }
  for (int i = 0; i < count; i++) {
    if (PyUnicode_Compare(name, names[i]) == 0) return i;
  }
  return -1;
}
