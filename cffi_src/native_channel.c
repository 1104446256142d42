// SPDX-License-Identifier: Apache-2.0
/* Gets by a channel, whose Taker is given the address of a queue. See native_message.h. */
#include "native_message.h"

static sb_queue *queue_of(const Taker *self, PyObject *address) {
  sb_queue *queue = self->kind == OF_CHANNEL ? PyLong_AsVoidPtr(address) : NULL;
  if (queue == NULL && PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "a channel and a queue are needed");
  return queue;
}

PyObject *sb_channel_taker_get(PyObject *taker, PyObject *const *arguments, Py_ssize_t count) {
  Taker *self = (Taker *)taker;
  int auto_ack = sb_expect(count, 3) ? PyObject_IsTrue(arguments[2]) : -1;
  sb_queue *queue = auto_ack < 0 ? NULL : queue_of(self, arguments[1]);
  if (queue == NULL) {
    return NULL;
  }
  int64_t length = sb_channel_get(self->handle, queue, self->buffer, auto_ack);
  return length < 0 ? PyLong_FromLongLong(-length)
                    : sb_hand_over(self, arguments[0], self->buffer, length, auto_ack, FRESH);
}

PyObject *sb_channel_taker_get_wait(PyObject *taker, PyObject *const *arguments, Py_ssize_t count) {
  Taker *self = (Taker *)taker;
  int auto_ack = sb_expect(count, 4) ? PyObject_IsTrue(arguments[2]) : -1;
  sb_queue *queue = auto_ack < 0 ? NULL : queue_of(self, arguments[1]);
  unsigned long long until = queue == NULL ? 0 : PyLong_AsUnsignedLongLong(arguments[3]);
  char *buffer = PyErr_Occurred() == NULL ? PyMem_Malloc(RECORD_BYTES) : NULL;
  if (buffer == NULL) {
    return PyErr_Occurred() == NULL ? PyErr_NoMemory() : NULL;
  }
  Room room = {.queue = queue, .buffer = buffer};
  int64_t length = sb_wait_for(self, &room, auto_ack, until);
  PyObject *result = length == 0  ? NULL
                     : length < 0 ? PyLong_FromLongLong(-length)
                                  : sb_hand_over(self, arguments[0], buffer, length, auto_ack, FRESH);
  PyMem_Free(buffer);
  return result;
}
