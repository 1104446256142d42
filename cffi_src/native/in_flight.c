// SPDX-License-Identifier: Apache-2.0
/* InFlight: the base of a connection, which counts the calls that drop the GIL. See native_message.h. */
#include "native_message.h"

#include <structmember.h>

PyTypeObject *sb_in_flight_type;

void sb_in_flight_begin(PyObject *connection) { ((InFlight *)connection)->calls++; }

PyObject *sb_in_flight_end(PyObject *connection, PyObject *result) {
  InFlight *self = (InFlight *)connection;
  self->calls--;
  if (!self->closed || self->calls != 0) {
    return result;
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *forgotten = PyObject_CallMethod(connection, "forget", NULL);
  if (forgotten == NULL) {
    Py_CLEAR(result);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return NULL;
  }
  Py_DECREF(forgotten);
  PyErr_Restore(type, value, trace);
  return result;
}

static PyMemberDef in_flight_members[] = {
    {"calls", T_INT, offsetof(InFlight, calls), 0, "The number of calls in flight."},
    {"closed", T_BOOL, offsetof(InFlight, closed), 0, "Whether the connection was closed."},
    {"has_io", T_BOOL, offsetof(InFlight, has_io), 0, "Whether an IO thread was ever started."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot in_flight_slots[] = {
    {Py_tp_members, in_flight_members},
    {Py_tp_doc, (void *)"Counts the calls of a connection that are in flight."},
    {0, NULL},
};
PyType_Spec sb_in_flight_spec = {"shmbroker._native_message.InFlight", sizeof(InFlight), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, in_flight_slots};
