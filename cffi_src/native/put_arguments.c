// SPDX-License-Identifier: Apache-2.0
/* The arguments of a queue's put and reserve: the body or the size, a timeout, and options. See native_message.h. */
#include "native_message.h"

#include <string.h>

/* of a time to live or a delay, as shmbroker/_put_options.py checks them */
#define MOST_SECONDS 1e8
#define LEAST_SECONDS 1e-9

enum { TIMEOUT, KEY, PRIORITY, PROPERTIES, TTL, DELAY, NAME_COUNT };
static const char *const TEXTS[NAME_COUNT] = {"timeout", "key", "priority", "properties", "ttl", "delay"};
static PyObject *known[NAME_COUNT]; /* interned strings */

bool sb_put_names(void) { return sb_intern(TEXTS, known, NAME_COUNT); }

static bool is_name(PyObject *given, int name) {
  return given == known[name] || PyUnicode_Compare(given, known[name]) == 0;
}
static bool is_first(PyObject *given, const char *first) { return PyUnicode_CompareWithASCIIString(given, first) == 0; }

Py_ssize_t sb_count_names(PyObject *names) { return names != NULL ? PyTuple_Size(names) : 0; }

bool sb_read_put(PutArguments *to, const char *call, const char *first, PyObject *const *arguments, Py_ssize_t count,
                 PyObject *names) {
  *to = (PutArguments){count > 0 ? arguments[0] : NULL, Py_None, Py_None, Py_None, Py_None, Py_None, Py_None, false};
  if (count > 1) {
    PyErr_Format(PyExc_TypeError, "Queue.%s() takes 2 positional arguments but %zd were given", call, count + 1);
    return false;
  }
  for (Py_ssize_t i = 0; i < sb_count_names(names); i++) {
    PyObject *name = PyTuple_GetItem(names, i), *value = arguments[count + i];
    if (is_name(name, KEY)) {
      to->key = value;
    } else if (is_name(name, TIMEOUT)) {
      to->timeout = value;
    } else if (is_name(name, PRIORITY)) {
      to->priority = value;
    } else if (is_name(name, PROPERTIES)) {
      to->properties = value;
    } else if (is_name(name, TTL)) {
      to->ttl = value;
    } else if (is_name(name, DELAY)) {
      to->delay = value;
    } else if (!is_first(name, first)) {
      to->more = true;
    } else if (to->first == NULL) {
      to->first = value;
    } else {
      PyErr_Format(PyExc_TypeError, "Queue.%s() got multiple values for argument '%s'", call, first);
      return false;
    }
  }
  if (to->first == NULL) {
    PyErr_Format(PyExc_TypeError, "Queue.%s() missing 1 required positional argument: '%s'", call, first);
  }
  return to->first != NULL;
}

/* *ns: a number of seconds in nanoseconds, 0 for None. False: it is no plain number, or out of range. */
static bool read_seconds(PyObject *given, bool may_be_zero, uint64_t *ns) {
  *ns = 0;
  if (given == Py_None) {
    return true;
  }
  if (!PyFloat_CheckExact(given) && !PyLong_CheckExact(given)) {
    return false;
  }
  double seconds = PyFloat_AsDouble(given); /* an int that is too large for a double raises */
  if (PyErr_Occurred() != NULL) {
    PyErr_Clear();
    return false;
  }
  bool good = seconds >= (may_be_zero ? 0 : LEAST_SECONDS) && seconds <= MOST_SECONDS; /* NaN: false */
  if (good) *ns = (uint64_t)(seconds * 1e9);
  return good;
}

bool sb_read_options(sb_put_options *to, char *buffer, const PutArguments *given) {
  memset(to, 0, sizeof *to);
  if (given->key != Py_None) {
    Py_ssize_t length = 0;
    to->key = PyUnicode_CheckExact(given->key) ? PyUnicode_AsUTF8AndSize(given->key, &length) : NULL;
    to->key_length = (uint32_t)length;
    if (to->key == NULL || length > UINT8_MAX) {
      PyErr_Clear();
      return false;
    }
  }
  if (given->priority != Py_None) {
    int beyond = 0;
    long priority = PyLong_CheckExact(given->priority) ? PyLong_AsLongAndOverflow(given->priority, &beyond) : -1;
    if (priority < 0 || priority > UINT8_MAX) {
      return false;
    }
    to->priority = (uint8_t)priority;
  }
  if (!read_seconds(given->ttl, false, &to->ttl_ns) || !read_seconds(given->delay, true, &to->delay_ns)) {
    return false;
  }
  return given->properties == Py_None ||
         (given->priority == Py_None && given->ttl == Py_None && sb_properties_encode(given->properties, buffer, to));
}

PyObject *sb_given_options(const char *first, PyObject *const *values, PyObject *names) {
  PyObject *options = PyDict_New();
  for (Py_ssize_t i = 0; options != NULL && i < sb_count_names(names); i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    bool is_option = !is_name(name, TIMEOUT) && !is_first(name, first);
    if (is_option && PyDict_SetItem(options, name, values[i]) < 0) Py_CLEAR(options);
  }
  return options;
}
