// SPDX-License-Identifier: Apache-2.0
/* Finalizers of Python objects that lose no exception of a signal handler. See native_message.h.
 *
 * Python runs signal handlers as a Python function begins. If a handler raises in a function that Python itself calls,
 * such as `__del__`, Python prints the exception and drops it: a Ctrl-C is lost. So no class of the package has a
 * `__del__`. A class with a finalizer is derived from `Finalized`, and its finalizer is the method `_finalize`. This
 * file calls `_finalize` until it returns, at most MOST_CALLS times, so each call of `_finalize` must do only what is
 * left to do. If a call in the main thread raises, and a later one returns, a signal handler must have raised the
 * exception. This file then has Python raise the first such exception in the main thread, soon after the finalizer. It
 * prints any other exception. */
#include "native_message.h"

#include <sys/syscall.h>
#include <unistd.h>

/* Calls of one finalizer. If all of them raise, the finalizer has a fault, or the program interrupts on purpose. */
enum { MOST_CALLS = 100 };

/* Signal handlers run only in the main thread of Python. That is the first thread of the process, unless a program
 * that embeds Python starts it in another thread. */
static bool in_main_thread(void) { return syscall(SYS_gettid) == getpid(); }

/* Python calls it in the main thread, between two instructions. Raises the exception there. */
static int raise_kept(void *argument) {
  PyObject *exception = argument;
  PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  Py_DECREF(exception);
  return -1;
}

/* Takes the exception that is set. */
static PyObject *taken(void) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != NULL) (void)PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
}

static void print(PyObject *exception, PyObject *finalizer) {
  PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  PyErr_WriteUnraisable(finalizer);
  Py_DECREF(exception);
}

void sb_finalize(PyObject *finalizer) {
  PyObject *type, *value, *trace, *first = NULL, *done = NULL;
  PyErr_Fetch(&type, &value, &trace);
  for (int calls = 0; calls < MOST_CALLS && done == NULL; calls++) {
    done = PyObject_CallNoArgs(finalizer);
    PyObject *raised = done == NULL ? taken() : NULL;
    if (first == NULL) {
      first = raised;
    } else {
      Py_XDECREF(raised);
    }
  }
  if (first != NULL) {
    bool from_handler = done != NULL && in_main_thread();
    /* The frames of a traceback would keep what is being freed. */
    if (from_handler) (void)PyException_SetTraceback(first, Py_None);
    if (!from_handler || Py_AddPendingCall(raise_kept, first) < 0) print(first, finalizer);
  }
  Py_XDECREF(done);
  PyErr_Restore(type, value, trace);
}

/* The name of the method, made once in advance: a finalizer may run after an allocation failed, when there is no memory
 * to make the name. */
static PyObject *name;

bool sb_finalizer_name(void) { return (name = PyUnicode_InternFromString("_finalize")) != NULL; }

static void finalized_finalize(PyObject *self) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *finalizer = PyObject_GetAttr(self, name);
  if (finalizer != NULL) {
    sb_finalize(finalizer);
    Py_DECREF(finalizer);
  } else {
    PyErr_WriteUnraisable(self);
  }
  PyErr_Restore(type, value, trace);
}

static PyType_Slot finalized_slots[] = {
    {Py_tp_finalize, (void *)finalized_finalize},
    {Py_tp_doc, (void *)"Has `_finalize` called when the object is freed, and again until it returns."},
    {0, NULL},
};
PyType_Spec sb_finalized_spec = {"shmbroker._native_message.Finalized", sizeof(PyObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, finalized_slots};

PyObject *sb_run_finalizer(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
  (void)module;
  if (!sb_expect(count, 2)) return NULL;
  sb_finalize(arguments[0]);
  return Py_NewRef(Py_None);
}
