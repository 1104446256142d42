// SPDX-License-Identifier: Apache-2.0
/* Writable: memory of a reservation, into which the application writes a body. See native_message.h.
 *
 * It counts its views: the memoryviews that Python made of it. The slices of a memoryview, and what was made of them,
 * count as one view with it, which ends with the last of them. */
#include "native_message.h"

#include <structmember.h>

typedef struct {
  PyObject_HEAD char *address;
  Py_ssize_t length, views;
  PyObject *unviewed; /* called when the last view has ended; None: nothing is called */
} Writable;

static PyObject *made(PyTypeObject *type, void *address, Py_ssize_t length) {
  Writable *self = (Writable *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self != NULL) {
    self->address = address;
    self->length = length;
    self->unviewed = Py_NewRef(Py_None);
  }
  return (PyObject *)self;
}

PyObject *sb_writable(void *address, Py_ssize_t length) { return made(sb_writable_type, address, length); }
Py_ssize_t sb_writable_views(PyObject *writable) { return ((Writable *)writable)->views; }

static PyObject *writable_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long address;
  Py_ssize_t length;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "Kn", &address, &length)) {
    return NULL;
  }
  return made(type, (void *)(uintptr_t)address, length);
}

static void writable_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(((Writable *)object)->unviewed);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static int writable_get(PyObject *object, Py_buffer *buffer, int flags) {
  Writable *self = (Writable *)object;
  int failed = PyBuffer_FillInfo(buffer, object, self->address, self->length, 0, flags);
  if (!failed) self->views++;
  return failed;
}

static void writable_release(PyObject *object, Py_buffer *buffer) {
  Writable *self = (Writable *)object;
  (void)buffer;
  self->views--;
  if (self->views == 0 && self->unviewed != Py_None) {
    PyObject *unviewed = Py_NewRef(self->unviewed);
    sb_finalize(unviewed);
    Py_DECREF(unviewed);
  }
}

static PyMemberDef writable_members[] = {
    {"views", T_PYSSIZET, offsetof(Writable, views), READONLY, "The number of views."},
    {"unviewed", T_OBJECT, offsetof(Writable, unviewed), 0, "Called when the last view has ended, unless None."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot writable_slots[] = {
    {Py_tp_new, (void *)writable_new},
    {Py_tp_dealloc, (void *)writable_dealloc},
    {Py_bf_getbuffer, (void *)writable_get},
    {Py_bf_releasebuffer, (void *)writable_release},
    {Py_tp_members, writable_members},
    {Py_tp_doc, (void *)"Memory that the application writes a body into, given by its address and length."},
    {0, NULL},
};
PyType_Spec sb_writable_spec = {"shmbroker._native_message.Writable", sizeof(Writable), 0, Py_TPFLAGS_DEFAULT,
                                writable_slots};
