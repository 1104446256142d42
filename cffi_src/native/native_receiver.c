// SPDX-License-Identifier: Apache-2.0
/* Taking messages one by one: Receiver, and Messages, which iterates. See native_message.h. */
#include "native_message.h"

#include <structmember.h>
#include <time.h>

PyTypeObject *sb_receiver_type;

static _Alignas(64) char one_record[RECORD_BYTES]; /* shared, since 65,535 Receivers would need 4 GiB */

/* Creates a message; `body` and `rest` pass over to it. NULL: an exception is set, and both are released. A message that
 * the garbage collector tracks may start it, and with it finalizers. */
static PyObject *new_record(Receiver *self, PyObject *source, const sb_record *fixed, PyObject *body, PyObject *rest,
                            char state) {
  Record *record =
      (Record *)(self->allocate != NULL ? self->allocate(self->type, 0) : (PyObject *)PyObject_New(Record, self->type));
  if (record == NULL) {
    Py_XDECREF(body);
    Py_XDECREF(rest);
    return NULL;
  }
  record->source = Py_NewRef(source);
  record->body = body;
  record->rest = rest;
  record->view = record->header = record->consumer = record->weak_references = NULL;
  record->handle = self->handle;
  record->tag = self->kind == OF_CHANNEL ? fixed->tag : 0;
  record->state = state;
  record->kind = self->kind;
  record->unseen = false;
  record->fixed = *fixed;
  return (PyObject *)record;
}

static bool is_long(const sb_record *record) { return record->body_address != 0; }

void sb_give_back(Receiver *self, PyObject *source, const sb_record *record, uint64_t view, int auto_ack) {
  if (!auto_ack) {
    (void)sb_settle_record(self->kind, self->handle, record, SB_UNDELIVER);
  } else if (is_long(record)) {
    sb_end_view_of(source, view);
  }
}

PyObject *sb_hand_over(Receiver *self, PyObject *source, const char *buffer, int64_t length, int auto_ack, char state) {
  sb_record fixed = *sb_header_of(buffer); /* finalizers may run below, and overwrite the buffer */
  uint64_t view = is_long(&fixed) ? sb_tag_of(self->kind, buffer, (Py_ssize_t)length) : 0;
  size_t inside = is_long(&fixed) ? 0 : (size_t)fixed.body_length, rest = (size_t)length - sizeof fixed - inside;
  PyObject *message = NULL, *names = NULL, *body = NULL;
  bool copied =
      (rest == 0 || (names = PyBytes_FromStringAndSize(buffer + sizeof fixed, (Py_ssize_t)rest)) != NULL) &&
      (is_long(&fixed) || (body = PyBytes_FromStringAndSize(buffer + length - inside, (Py_ssize_t)inside)) != NULL);
  if (copied) {
    message = new_record(self, source, &fixed, body, names, auto_ack ? SETTLED : state);
  } else {
    Py_XDECREF(names);
  }
  if (message == NULL) {
    sb_give_back(self, source, &fixed, view, auto_ack);
  } else if (auto_ack && is_long(&fixed) && !sb_record_take_over_view(message)) {
    Py_CLEAR(message);
  }
  return message;
}

PyObject *sb_take_message(Receiver *self, PyObject *source, int auto_ack, char state) {
  int64_t length = self->kind == OF_CONSUMER  ? sb_consumer_next(self->handle, self->buffer, auto_ack)
                   : self->kind == OF_CHANNEL ? sb_channel_next(self->handle, self->buffer)
                                              : sb_queue_get(self->handle, self->buffer, auto_ack);
  if (length < 0) {
    self->status = (int)-length;
    return Py_NewRef(Py_None);
  }
  if (self->kind == OF_CHANNEL) auto_ack = ((const sb_record *)(const void *)self->buffer)->settled;
  return sb_hand_over(self, source, self->buffer, length, auto_ack, state);
}

/* True if the caller must report to the connection that the application polls. True at the first poll, and then at most
 * once in POLLED_NS, because a report of each poll would slow down an application that polls without a pause. To read
 * the coarse clock here costs a tenth of what it costs to read a clock in Python. */
#define POLLED_NS 100000000u
static bool tells_of_polling(Receiver *self) {
  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &clock);
  unsigned long long now = (unsigned long long)clock.tv_sec * 1000000000u + (unsigned long long)clock.tv_nsec;
  if (self->polled_ns != 0 && now - self->polled_ns < POLLED_NS) {
    return false;
  }
  self->polled_ns = now;
  return true;
}

void sb_note_poll(Receiver *self) {
  if (self->kind == OF_QUEUE && self->status == SB_EMPTY && tells_of_polling(self)) self->status = SB_TICK;
}

PyObject *sb_poll_message(Receiver *self, PyObject *source, int auto_ack) {
  PyObject *got = sb_take_message(self, source, auto_ack, FRESH);
  if (got == Py_None) sb_note_poll(self);
  return got;
}

/* The method take(source, auto_ack[, timeout]) of Python: returns a message, without waiting for one. If it returns
 * None, the attribute `status` says why there is no message. Without `timeout` it polls (sb_poll_message). */
static PyObject *receiver_take(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)object;
  int auto_ack = sb_expect_timeout(arguments, count, 2) ? PyObject_IsTrue(arguments[1]) : -1;
  return auto_ack < 0 ? NULL
         : count == 2 ? sb_poll_message(self, arguments[0], auto_ack)
                      : sb_take_message(self, arguments[0], auto_ack, FRESH);
}

/* A wait looks for signals from time to time. It looks for the first time soon, since a signal that came just before
 * the sleep does not end the sleep. */
#define FIRST_LOOK_NS 10000000u
#define LATER_LOOKS_NS 1000000000u
#define SOON_NS 10000u

int64_t sb_wait_for(Receiver *self, Room *room, int auto_ack, uint64_t until) {
  sb_wait wait = {until, 0, 0, 0};
  struct timespec now;
  uint64_t pause = FIRST_LOOK_NS;
  for (;;) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    wait.look_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec + pause;
    PyThreadState *others = PyEval_SaveThread();
    int64_t got = room->queue != NULL   ? sb_channel_get_wait(self->handle, room->queue, room->buffer, auto_ack, &wait)
                  : room->index == NULL ? sb_queue_get_wait(self->handle, room->buffer, auto_ack, &wait)
                                        : sb_queue_get_many_wait(self->handle, room->count, auto_ack, room->buffer,
                                                                 room->size, room->index, &room->used, &wait);
    PyEval_RestoreThread(others);
    if (got != -(int64_t)SB_TICK && got != -(int64_t)SB_INTERRUPTED) {
      return got;
    }
    if (PyErr_CheckSignals() < 0) {
      sb_queue_end_wait(room->queue != NULL ? room->queue : self->handle, &wait);
      return 0;
    }
    pause = LATER_LOOKS_NS;
  }
}

PyObject *sb_await_message(Receiver *self, PyObject *source, int auto_ack) {
  int64_t length = sb_queue_get_spin(self->handle, SOON_NS, self->buffer, auto_ack);
  if (length < 0) {
    self->status = (int)-length;
    return Py_NewRef(Py_None);
  }
  return sb_hand_over(self, source, self->buffer, length, auto_ack, FRESH);
}

static PyObject *receiver_wait(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)object;
  int auto_ack = sb_expect(count, 3) ? PyObject_IsTrue(arguments[1]) : -1;
  unsigned long long until = auto_ack < 0 ? 0 : PyLong_AsUnsignedLongLong(arguments[2]);
  char *buffer = PyErr_Occurred() == NULL ? PyMem_Malloc(RECORD_BYTES) : NULL;
  if (buffer == NULL) {
    return PyErr_Occurred() == NULL ? PyErr_NoMemory() : NULL;
  }
  Room room = {.buffer = buffer};
  int64_t length = sb_wait_for(self, &room, auto_ack, until);
  PyObject *result = length == 0  ? NULL
                     : length < 0 ? PyLong_FromLongLong(-length)
                                  : sb_hand_over(self, arguments[0], buffer, length, auto_ack, FRESH);
  PyMem_Free(buffer);
  return result;
}

/* True if the record contains the body. A record from sb_queue_browse_place has neither a body nor a body's address:
 * exchange, key and properties are then the whole rest of the record. */
static bool is_inside(const sb_record *header, uint64_t length) {
  uint64_t before = (uint64_t)header->exchange_length + header->key_length + header->properties_length;
  uint64_t rest = length - sizeof *header;
  return header->body_address == 0 && before <= rest && header->body_length <= rest - before;
}

/* The body in a record of a browse. A copy of a long one would take as much memory again. */
static PyObject *body_in(PyObject *data, uint64_t length) {
  Py_ssize_t end = PyBytes_Size(data), begin = end - (Py_ssize_t)length;
  if (length <= SB_INLINE_BODY) {
    return PyBytes_FromStringAndSize(PyBytes_AsString(data) + begin, (Py_ssize_t)length);
  }
  PyObject *whole = PyMemoryView_FromObject(data),
           *body = whole != NULL ? PySequence_GetSlice(whole, begin, end) : NULL;
  Py_XDECREF(whole);
  return body;
}

static PyObject *receiver_message(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  long state = sb_expect(count, 3) ? PyLong_AsLong(arguments[2]) : -1;
  if (state == -1 && PyErr_Occurred() != NULL) {
    return NULL;
  }
  PyObject *data = arguments[1];
  if (!PyBytes_Check(data) || PyBytes_Size(data) < (Py_ssize_t)sizeof(sb_record)) {
    PyErr_Format(PyExc_TypeError, "a record is bytes, at least %d of them", (int)sizeof(sb_record));
    return NULL;
  }
  const sb_record *header = sb_header_of(PyBytes_AsString(data));
  bool inside = is_inside(header, (uint64_t)PyBytes_Size(data));
  Py_ssize_t rest = PyBytes_Size(data) - (Py_ssize_t)sizeof *header - (inside ? (Py_ssize_t)header->body_length : 0);
  PyObject *body = inside ? body_in(data, header->body_length) : NULL;
  if (inside && body == NULL) {
    return NULL;
  }
  PyObject *names = PyBytes_FromStringAndSize((const char *)(header + 1), rest);
  if (names == NULL) {
    Py_XDECREF(body);
    return NULL;
  }
  return new_record((Receiver *)object, arguments[0], header, body, names, (char)state);
}

static PyObject *receiver_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long address;
  int kind;
  PyTypeObject *messages, *batches;
  if (keywords != NULL && PyDict_Size(keywords) != 0) {
    PyErr_SetString(PyExc_TypeError, "no keywords are taken");
    return NULL;
  }
  if (!PyArg_ParseTuple(arguments, "KiO!O!", &address, &kind, &PyType_Type, &messages, &PyType_Type, &batches)) {
    return NULL;
  }
  if (address == 0 || kind < OF_QUEUE || kind > OF_CHANNEL || !PyType_IsSubtype(messages, sb_record_type) ||
      !PyType_IsSubtype(batches, sb_batch_type)) {
    PyErr_SetString(PyExc_TypeError, "a handle and its kind, a subclass of Record and one of Batch are needed");
    return NULL;
  }
  Receiver *self = (Receiver *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self == NULL) {
    return NULL;
  }
  self->buffer = one_record;
  self->handle = (void *)(uintptr_t)address;
  self->kind = (char)kind;
  self->type = (PyTypeObject *)Py_NewRef((PyObject *)messages);
  bool tracked = (PyType_GetFlags(messages) & Py_TPFLAGS_HAVE_GC) != 0;
  self->allocate = tracked ? (allocfunc)PyType_GetSlot(messages, Py_tp_alloc) : NULL;
  self->batches = (PyTypeObject *)Py_NewRef((PyObject *)batches);
  return (PyObject *)self;
}

static void receiver_dealloc(PyObject *object) {
  Receiver *self = (Receiver *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyMem_Free(self->many);
  Py_XDECREF((PyObject *)self->type);
  Py_XDECREF((PyObject *)self->batches);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef receiver_methods[] = {
    {"take", (PyCFunction)(void (*)(void))receiver_take, METH_FASTCALL,
     "take(source, auto_ack, timeout=None, /)\n--\n\n"},
    {"wait", (PyCFunction)(void (*)(void))receiver_wait, METH_FASTCALL, "wait(source, auto_ack, until, /)\n--\n\n"},
    {"message", (PyCFunction)(void (*)(void))receiver_message, METH_FASTCALL,
     "message(source, record, state, /)\n--\n\n"},
    {"take_many", (PyCFunction)(void (*)(void))sb_take_many, METH_FASTCALL,
     "take_many(source, count, auto_ack, timeout=None, /)\n--\n\n"},
    {"wait_many", (PyCFunction)(void (*)(void))sb_wait_many, METH_FASTCALL,
     "wait_many(source, count, auto_ack, until, /)\n--\n\n"},
    {"get", (PyCFunction)(void (*)(void))sb_channel_receiver_get, METH_FASTCALL,
     "get(source, queue, auto_ack, /)\n--\n\n"},
    {"get_wait", (PyCFunction)(void (*)(void))sb_channel_receiver_get_wait, METH_FASTCALL,
     "get_wait(source, queue, auto_ack, until, /)\n--\n\n"},
    {"deliver", (PyCFunction)(void (*)(void))sb_channel_receiver_deliver, METH_FASTCALL,
     "deliver(channel, subscriptions, events, no_properties, most, /)\n--\n\n"},
    {"settle", (PyCFunction)(void (*)(void))sb_channel_receiver_settle, METH_FASTCALL,
     "settle(delivery_tag, multiple, disposition, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef receiver_members[] = {
    {"status", T_INT, offsetof(Receiver, status), 0, "Why the last `take` or `deliver` brought nothing."},
    {"delivered", T_PYSSIZET, offsetof(Receiver, delivered), 0,
     "How many the last `deliver` handed over, if it raised, too."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot receiver_slots[] = {
    {Py_tp_members, receiver_members},
    {Py_tp_new, (void *)receiver_new},
    {Py_tp_dealloc, (void *)receiver_dealloc},
    {Py_tp_methods, receiver_methods},
    {Py_tp_doc, (void *)"Takes messages out of a queue, a consumer or a channel of the core, given by its address."},
    {0, NULL},
};
PyType_Spec sb_receiver_spec = {"shmbroker._native_message.Receiver", sizeof(Receiver), 0, Py_TPFLAGS_DEFAULT,
                                receiver_slots};

/* ---- Messages ---- */

typedef struct {
  PyObject_HEAD PyObject *receiver, *consumer;
  int auto_ack;
} Messages;

static PyObject *messages_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  PyObject *receiver, *consumer;
  int auto_ack;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "O!Op", sb_receiver_type, &receiver, &consumer, &auto_ack)) {
    return NULL;
  }
  Messages *self = (Messages *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self != NULL) {
    self->receiver = Py_NewRef(receiver);
    self->consumer = Py_NewRef(consumer);
    self->auto_ack = auto_ack;
  }
  return (PyObject *)self;
}

static void messages_dealloc(PyObject *object) {
  Messages *self = (Messages *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(self->receiver);
  Py_XDECREF(self->consumer);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

/* The next message without waiting. If there is none, the Python consumer waits, or ends the iteration. */
static PyObject *messages_next(PyObject *object) {
  Messages *self = (Messages *)object;
  PyObject *message = sb_take_message((Receiver *)self->receiver, self->consumer, self->auto_ack, OPEN);
  if (message != Py_None) {
    return message;
  }
  Py_DECREF(message);
  return PyObject_CallMethod(self->consumer, "__next__", NULL);
}

static PyObject *self_iter(PyObject *object) { return Py_NewRef(object); }

static PyType_Slot messages_slots[] = {
    {Py_tp_new, (void *)messages_new},
    {Py_tp_dealloc, (void *)messages_dealloc},
    {Py_tp_iter, (void *)self_iter},
    {Py_tp_iternext, (void *)messages_next},
    {Py_tp_doc, (void *)"Iterates over a consumer."},
    {0, NULL},
};
PyType_Spec sb_messages_spec = {"shmbroker._native_message.Messages", sizeof(Messages), 0, Py_TPFLAGS_DEFAULT,
                                messages_slots};
