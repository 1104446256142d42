// SPDX-License-Identifier: Apache-2.0
/* Bodies that are read in place: memoryviews of shared memory. See native_message.h.
 *
 * A View keeps the slot (by a view of the core), the mapping, and the connection: the handle of a connection is not
 * freed while the connection has views. The View ends when its last memoryview is freed, in any thread.
 */
#include "native_message.h"

typedef struct {
  PyObject_HEAD PyObject *connection, *mapping;
  sb_connection *handle;
  char *address;
  uint64_t token;
  Py_ssize_t length;
} View;

PyTypeObject *sb_view_type;

/* The names of attributes, made once in advance: a function that ends a view after an allocation failed may have no
 * memory to make a name. */
static PyObject *source_connection, *connection_address, *connection_mapping, *connection_view_ended;

bool sb_view_names(void) {
  source_connection = PyUnicode_InternFromString("_core_connection");
  connection_address = PyUnicode_InternFromString("address");
  connection_mapping = PyUnicode_InternFromString("mapping");
  connection_view_ended = PyUnicode_InternFromString("view_ended");
  return source_connection != NULL && connection_address != NULL && connection_mapping != NULL &&
         connection_view_ended != NULL;
}

PyObject *sb_connection_of(PyObject *source) { return PyObject_GetAttr(source, source_connection); }

static sb_connection *handle_of(PyObject *connection) {
  PyObject *address = PyObject_GetAttr(connection, connection_address);
  sb_connection *handle = address != NULL ? PyLong_AsVoidPtr(address) : NULL;
  Py_XDECREF(address);
  return handle;
}

/* Called after a view of a closed connection ended. If it was the last one, and no call uses the connection any more,
 * Python releases the connection (sb_connection_release). */
static void view_ended(PyObject *connection) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *method = PyObject_GetAttr(connection, connection_view_ended);
  if (method != NULL) {
    sb_finalize(method);
    Py_DECREF(method);
  } else {
    PyErr_WriteUnraisable(connection);
  }
  PyErr_Restore(type, value, trace);
}

static void end_view(PyObject *connection, sb_connection *handle, uint64_t token) {
  if (sb_view_end(handle, token)) view_ended(connection);
}

void sb_end_view_of(PyObject *source, uint64_t token) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *connection = sb_connection_of(source);
  sb_connection *handle = connection != NULL ? handle_of(connection) : NULL;
  if (handle != NULL) end_view(connection, handle, token);
  Py_XDECREF(connection);
  PyErr_Restore(type, value, trace);
}

static void view_dealloc(PyObject *object) {
  View *self = (View *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->handle != NULL) end_view(self->connection, self->handle, self->token);
  Py_XDECREF(self->connection);
  Py_XDECREF(self->mapping);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static int view_buffer(PyObject *object, Py_buffer *buffer, int flags) {
  View *self = (View *)object;
  return PyBuffer_FillInfo(buffer, object, self->address, self->length, 1, flags);
}

/* Copies a body that is stored in parts, and ends its view. */
static PyObject *copied(PyObject *connection, uint64_t token, uint64_t length) {
  sb_connection *handle = handle_of(connection);
  PyObject *bytes = handle != NULL ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length) : NULL;
  sb_status status = bytes != NULL ? sb_view_copy(handle, token, PyBytes_AsString(bytes), length) : SB_OK;
  if (handle != NULL) end_view(connection, handle, token);
  if (status != SB_OK) {
    Py_CLEAR(bytes);
    PyObject *failed = PyObject_CallMethod(connection, "view_failed", "i", (int)status);
    Py_XDECREF(failed); /* NULL: view_failed always raises */
  }
  PyObject *memory = bytes != NULL ? PyMemoryView_FromObject(bytes) : NULL;
  Py_XDECREF(bytes);
  return memory;
}

PyObject *sb_view_memory(PyObject *connection, uint64_t token, uint64_t address, uint64_t length) {
  if (address == SB_IN_PARTS) {
    return copied(connection, token, length);
  }
  sb_connection *handle = handle_of(connection);
  if (handle == NULL) {
    return NULL;
  }
  View *self = (View *)((allocfunc)PyType_GetSlot(sb_view_type, Py_tp_alloc))(sb_view_type, 0);
  if (self == NULL) {
    end_view(connection, handle, token);
    return NULL;
  }
  self->connection = Py_NewRef(connection);
  self->handle = handle;
  self->token = token;
  self->address = (char *)(uintptr_t)address;
  self->length = (Py_ssize_t)length;
  self->mapping = PyObject_GetAttr(connection, connection_mapping);
  PyObject *memory = self->mapping != NULL ? PyMemoryView_FromObject((PyObject *)self) : NULL;
  Py_DECREF((PyObject *)self); /* a memoryview keeps the View; without one the View is freed here */
  return memory;
}

PyObject *sb_view_of(PyObject *connection, const sb_record *header, uint64_t tag, bool may_copy) {
  sb_connection *handle = handle_of(connection);
  uint64_t token;
  if (handle == NULL) {
    return NULL;
  }
  sb_status status = sb_view_begin(handle, tag, header->sequence, header->body_address, &token);
  if (status != SB_OK) {
    bool copies = may_copy && (status == SB_LIMIT || status == SB_NO_MEMORY);
    /* begin_view adds a segment if it has to, and returns the token of the view, or raises; copy_body returns a copy */
    PyObject *taken =
        PyObject_CallMethod(connection, copies ? "copy_body" : "begin_view", "KKK", (unsigned long long)tag,
                            (unsigned long long)header->sequence, (unsigned long long)header->body_address);
    if (taken == NULL || copies) {
      return taken;
    }
    token = PyLong_AsUnsignedLongLong(taken);
    Py_DECREF(taken);
  }
  return sb_view_memory(connection, token, header->body_address, header->body_length);
}

PyObject *sb_read_in_place(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
  (void)module;
  if (!sb_expect(count, 4)) {
    return NULL;
  }
  sb_connection *handle = handle_of(arguments[0]);
  sb_place place = {.slot = (uint32_t)PyLong_AsUnsignedLong(arguments[1]),
                    .generation = PyLong_AsUnsignedLongLong(arguments[2]),
                    .length = PyLong_AsUnsignedLongLong(arguments[3])};
  uint64_t token, address;
  if (handle == NULL || PyErr_Occurred()) {
    return NULL;
  }
  sb_status status = sb_place_begin_view(handle, &place, &token, &address);
  return status == SB_OK ? sb_view_memory(arguments[0], token, address, place.length) : PyLong_FromLong(status);
}

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, (void *)view_dealloc},
    {Py_bf_getbuffer, (void *)view_buffer},
    {Py_tp_doc, (void *)"A body in shared memory, as long as somebody looks at it."},
    {0, NULL},
};
PyType_Spec sb_view_spec = {"shmbroker._native_message.View", sizeof(View), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};
