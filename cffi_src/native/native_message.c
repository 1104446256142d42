// SPDX-License-Identifier: Apache-2.0
/* A message that was taken: Record. See native_message.h. */
#include "native_message.h"

#include <string.h>
#include <structmember.h>

PyTypeObject *sb_record_type;

sb_status sb_settle_record(int kind, void *handle, const sb_record *record, sb_disposition disposition) {
  switch (kind) {
    case OF_CONSUMER: return sb_consumer_settle(handle, (const char *)record, disposition);
    case OF_CHANNEL: return sb_channel_settle(handle, record->tag, false, disposition);
    default: return sb_queue_settle(handle, (const char *)record, disposition);
  }
}

static sb_status settle(Record *self, sb_disposition disposition) {
  return sb_settle_record(self->kind, self->handle, &self->fixed, disposition);
}

static void record_dealloc(PyObject *object) {
  Record *self = (Record *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->weak_references != NULL) PyObject_ClearWeakRefs(object);
  bool lost = self->state == OPEN && self->unseen && PyErr_Occurred() != NULL;
  if (self->state == FRESH || lost) (void)settle(self, SB_UNDELIVER);
  Py_XDECREF(self->view);
  Py_XDECREF(self->header);
  Py_XDECREF(self->consumer);
  Py_XDECREF(self->rest);
  Py_XDECREF(self->body);
  Py_XDECREF(self->source);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject *record_ack(PyObject *object, PyObject *unused) {
  Record *self = (Record *)object;
  (void)unused;
  if (self->state != OPEN) {
    return PyObject_CallMethod(object, "_end", "i", SB_ACK);
  }
  self->state = SETTLED;
  sb_status status = settle(self, SB_ACK);
  if (status == SB_OK) Py_CLEAR(self->view); /* if the application has a reference to this view, the slot stays */
  if (status != SB_OK) {
    return PyObject_CallMethod(object, "_failed", "i", (int)status);
  }
  Py_RETURN_NONE;
}

uint64_t sb_tag_of(int kind, const char *record, Py_ssize_t length) {
  uint64_t tag = sb_header_of(record)->tag;
  if (kind == OF_CHANNEL) memcpy(&tag, record + length - sizeof tag, sizeof tag);
  return tag;
}

/* As sb_tag_of, of a message whose body is not in its record. */
static uint64_t tag_of(const Record *self) {
  uint64_t tag = self->fixed.tag;
  if (self->kind == OF_CHANNEL) {
    memcpy(&tag, PyBytes_AsString(self->rest) + PyBytes_Size(self->rest) - sizeof tag, sizeof tag);
  }
  return tag;
}

/* Begins a view of the body, and keeps it for the next access. Another thread may have run meanwhile, since the GIL may
 * have been dropped: if it settled the message, only the caller keeps the view. */
static PyObject *begin_view(Record *self, PyObject *connection, bool may_copy) {
  PyObject *view = sb_view_of(connection, &self->fixed, tag_of(self), may_copy);
  if (view != NULL && self->state != SETTLED) {
    PyObject *before = self->view;
    self->view = Py_NewRef(view);
    Py_XDECREF(before); /* another thread's view: ends with the last memoryview of it */
  }
  return view;
}

void sb_record_hand_out(PyObject *object) {
  Record *self = (Record *)object;
  if (self->state == FRESH) {
    self->state = OPEN;
    self->unseen = true;
  }
}

/* A long body is read in place. */
PyObject *sb_record_body(PyObject *object, bool may_copy) {
  Record *self = (Record *)object;
  self->unseen = false;
  if (self->body != NULL) {
    return PyMemoryView_FromObject(self->body);
  }
  if (self->view != NULL && self->view != Py_None) {
    return Py_NewRef(self->view);
  }
  if (self->state == SETTLED) {
    return PyObject_CallMethod(object, "_gone", NULL);
  }
  PyObject *connection = sb_connection_of(self->source);
  PyObject *body = connection != NULL ? begin_view(self, connection, may_copy) : NULL;
  Py_XDECREF(connection);
  return body;
}

static PyObject *record_body(PyObject *object, void *unused) {
  (void)unused;
  return sb_record_body(object, false);
}

PyObject *sb_record_bytes(PyObject *object, PyObject *unused) {
  Record *self = (Record *)object;
  (void)unused;
  self->unseen = false;
  if (self->body != NULL) {
    return PyBytes_FromObject(self->body);
  }
  PyObject *body = sb_record_body(object, true), *bytes = body != NULL ? PyBytes_FromObject(body) : NULL;
  Py_XDECREF(body);
  return bytes;
}

/* The record as the core wrote it. */
static PyObject *record_record(PyObject *object, void *unused) {
  const Record *self = (const Record *)object;
  PyObject *whole = PyBytes_FromStringAndSize((const char *)&self->fixed, sizeof self->fixed);
  (void)unused;
  if (whole != NULL && self->rest != NULL) PyBytes_Concat(&whole, self->rest);
  if (whole != NULL && self->body != NULL) PyBytes_Concat(&whole, self->body);
  return whole;
}

bool sb_record_take_over_view(PyObject *object) {
  Record *self = (Record *)object;
  PyObject *connection = sb_connection_of(self->source);
  if (connection != NULL) {
    self->view = sb_view_memory(connection, tag_of(self), self->fixed.body_address, self->fixed.body_length);
    Py_DECREF(connection);
  }
  return self->view != NULL;
}

static Py_ssize_t record_length(PyObject *object) { return (Py_ssize_t)((const Record *)object)->fixed.body_length; }

/* Python reads this field of a message that came before its consumer was registered, or after it was cancelled
 * (`_deliver_late`). For all other deliveries `deliver` (native_channel.c) reads it. */
static PyObject *record_subscription(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromLong(((const Record *)object)->fixed.subscription);
}

static PyMethodDef record_methods[] = {
    {"__bytes__", sb_record_bytes, METH_NOARGS, "The body, as bytes."},
    {"ack", record_ack, METH_NOARGS,
     "ack()\n--\n\nAcknowledges: the message is done with.\n\nRaises:\n    MessageSettled: it was settled already."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef record_properties[] = {
    {"body", record_body, NULL,
     "The body, read-only.\n\nRaises:\n    MessageSettled: it was longer than 4 KiB, is settled, and no view of it was "
     "kept.",
     NULL},
    {"_record", record_record, NULL, "The record as the core wrote it.", NULL},
    {"_subscription", record_subscription, NULL, "Which consumer of its source it came through.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef record_members[] = {
    {"_source", T_OBJECT, offsetof(Record, source), READONLY, NULL},
    {"_view", T_OBJECT, offsetof(Record, view), 0, NULL},
    {"_record_header", T_OBJECT, offsetof(Record, header), 0, NULL},
    {"_consumer", T_OBJECT, offsetof(Record, consumer), 0, NULL},
    {"_tag", T_ULONGLONG, offsetof(Record, tag), 0, NULL},
    {"_delivery_tag", T_ULONGLONG, offsetof(Record, tag), READONLY,
     "The number of this delivery on its channel, from 1."},
    {"_state", T_BYTE, offsetof(Record, state), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Record, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot record_slots[] = {
    {Py_tp_dealloc, (void *)record_dealloc},
    {Py_tp_methods, record_methods},
    {Py_tp_members, record_members},
    {Py_tp_getset, record_properties},
    {Py_sq_length, (void *)record_length},
    {Py_tp_doc, (void *)"A message of the core, made by a Receiver."},
    {0, NULL},
};
PyType_Spec sb_record_spec = {"shmbroker._native_message.Record", sizeof(Record), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                              record_slots};

/* untracked_type(name): a new subclass of Record whose objects the garbage collector does not track; `name` is that of
 * the module and of the class. Python's own class statement makes only types that are tracked. */
PyObject *sb_untracked_type(PyObject *module, PyObject *name) {
  PyType_Slot inherited[] = {{Py_tp_dealloc, (void *)record_dealloc}, {0, NULL}};
  PyType_Spec spec = {PyUnicode_AsUTF8AndSize(name, NULL), sizeof(Record), 0, sb_record_spec.flags, inherited};
  return spec.name != NULL ? PyType_FromModuleAndSpec(module, &spec, (PyObject *)sb_record_type) : NULL;
}
