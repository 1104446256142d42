// SPDX-License-Identifier: Apache-2.0
/* The calls of a channel for each message: deliver it to its callback, settle it by its tag, get one. See
 * native_message.h.
 *
 * For a get, the caller passes the address of the queue to the Receiver of the channel. */
#include "native_message.h"

static sb_queue *queue_of(const Receiver *self, PyObject *address) {
  sb_queue *queue = self->kind == OF_CHANNEL ? PyLong_AsVoidPtr(address) : NULL;
  if (queue == NULL && PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "a channel and a queue are needed");
  return queue;
}

/* Reads the body of a message, and then settles the message, for SB_GIVEN_UNREAD. The message object keeps the body.
 * False: an exception is set: the body could not be read, or another thread has closed the channel meanwhile. */
static bool read_and_settle(Record *message) {
  PyObject *body = sb_record_body((PyObject *)message, true);
  if (body == NULL) {
    return false;
  }
  Py_DECREF(body);
  message->state = SETTLED;
  sb_status status = sb_channel_settle(message->handle, message->tag, false, SB_ACK);
  PyObject *failed =
      status != SB_OK ? PyObject_CallMethod((PyObject *)message, "_failed", "i", (int)status) : NULL; /* raises */
  Py_XDECREF(failed);
  return status == SB_OK;
}

/* Creates the message of a record that a channel has given, and settles it if the record has SB_GIVEN_UNREAD. NULL: an
 * exception is set; unless the message was settled before, its delivery was undone. */
static PyObject *hand_over(Receiver *self, PyObject *channel, const char *buffer, int64_t length) {
  uint8_t settled = ((const sb_record *)(const void *)buffer)->settled;
  PyObject *message = sb_hand_over(self, channel, buffer, length, settled == SB_GIVEN_SETTLED, FRESH);
  if (message != NULL && settled == SB_GIVEN_UNREAD && !read_and_settle((Record *)message)) Py_CLEAR(message);
  return message;
}

PyObject *sb_channel_receiver_get(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)receiver;
  int auto_ack = sb_expect(count, 3) ? PyObject_IsTrue(arguments[2]) : -1;
  sb_queue *queue = auto_ack < 0 ? NULL : queue_of(self, arguments[1]);
  if (queue == NULL) {
    return NULL;
  }
  int64_t length = sb_channel_get(self->handle, queue, self->buffer, auto_ack);
  return length < 0 ? PyLong_FromLongLong(-length) : hand_over(self, arguments[0], self->buffer, length);
}

PyObject *sb_channel_receiver_get_wait(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)receiver;
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
                                  : hand_over(self, arguments[0], buffer, length);
  PyMem_Free(buffer);
  return result;
}

/* ---- callbacks ---- */

/* Handles a message that could not be given to its callback. Python decides whether that is an error: another thread
 * may just have closed the channel, or put the message back into its queue. */
static PyObject *not_handed_over(PyObject *channel) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  PyObject *result = PyObject_CallMethod(channel, "_not_handed_over", "O", error);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(traceback);
  return result;
}

/* Calls the callback. The message counts as handed over, and is not FRESH any more, as soon as its body was read. */
static PyObject *call(Record *message, PyObject *callback, PyObject *properties) {
  PyObject *body = sb_record_bytes((PyObject *)message, NULL);
  if (body == NULL) {
    return not_handed_over(message->source);
  }
  if (message->state == FRESH) message->state = OPEN;
  PyObject *result =
      PyObject_CallFunctionObjArgs(callback, message->source, (PyObject *)message, properties, body, NULL);
  Py_DECREF(body);
  return result;
}

/* Delivers a message to its consumer. consumer NULL: `subscriptions` has no entry for it, since the consumer is being
 * registered, or was just cancelled; Python then waits, and looks again. */
static PyObject *call_back(PyObject *message, PyObject *consumer, PyObject *no_properties, bool plain) {
  if (consumer == NULL) {
    return PyErr_Occurred() == NULL ? PyObject_CallMethod(((Record *)message)->source, "_deliver_late", "O", message)
                                    : NULL;
  }
  PyObject *callback = PyTuple_Check(consumer) ? PyTuple_GetItem(consumer, CALLBACK) : NULL;
  if (callback == NULL) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "a subscription is a tuple");
    return NULL;
  }
  Py_INCREF(callback); /* the callback may cancel its consumer */
  ((Record *)message)->consumer = Py_NewRef(PyTuple_GetItem(consumer, NAMES));
  PyObject *properties = plain ? Py_NewRef(no_properties) : PyObject_GetAttrString(message, "properties");
  PyObject *result = properties != NULL ? call((Record *)message, callback, properties) : NULL;
  Py_XDECREF(properties);
  Py_DECREF(callback);
  return result;
}

/* Delivers the next message. Returns 1: delivered, or Python dealt with the error of a message that could not be handed
 * over; 0: there is none, and `status` has the reason; -1: an exception. */
static int deliver(Receiver *self, PyObject *channel, PyObject *subscriptions, PyObject *no_properties) {
  int64_t length = sb_channel_next(self->handle, self->buffer);
  if (length < 0) {
    self->status = (int)-length;
    return 0;
  }
  self->delivered++;
  const sb_record *header = (const sb_record *)(const void *)self->buffer;
  long subscription = header->subscription;
  bool plain = header->properties_length == 0;
  PyObject *message = hand_over(self, channel, self->buffer, length);
  PyObject *number = message != NULL ? PyLong_FromLong(subscription) : NULL;
  PyObject *consumer = number != NULL ? PyDict_GetItemWithError(subscriptions, number) : NULL;
  PyObject *result = message == NULL  ? not_handed_over(channel)
                     : number != NULL ? call_back(message, consumer, no_properties, plain)
                                      : NULL;
  Py_XDECREF(number);
  Py_XDECREF(message);
  Py_XDECREF(result);
  return result != NULL ? 1 : -1;
}

/* deliver(channel, subscriptions, events, no_properties, most): delivers up to `most` messages. Stops when there is no
 * message, or when `events`, the work that Python does first, is not empty. Returns the number of delivered messages.
 * Raises what a callback raises; the member `delivered` also counts the message of that callback. */
PyObject *sb_channel_receiver_deliver(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)receiver;
  Py_ssize_t most = sb_expect(count, 5) ? PyLong_AsSsize_t(arguments[4]) : -1;
  if (most < 0 || self->kind != OF_CHANNEL || !PyDict_Check(arguments[1])) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "deliver(channel, dict, events, properties, int)");
    return NULL;
  }
  self->delivered = 0;
  self->status = SB_EMPTY;
  int one = 1;
  while (one > 0 && self->delivered < most) {
    Py_ssize_t events = PyObject_Size(arguments[2]);
    if (events != 0) {
      one = events < 0 ? -1 : 0;
    } else {
      one = deliver(self, arguments[0], arguments[1], arguments[3]);
    }
  }
  return one < 0 ? NULL : PyLong_FromSsize_t(self->delivered);
}

/* ---- settling ---- */

/* settle(delivery_tag, multiple, disposition): returns the status; -1: nothing was settled, since the receiver belongs
 * to no channel, or the tag is no plain int, or is out of range. Python then checks the tag, and settles, or reports
 * what is wrong. */
PyObject *sb_channel_receiver_settle(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count) {
  const Receiver *self = (const Receiver *)receiver;
  if (!sb_expect(count, 3)) {
    return NULL;
  }
  unsigned long long tag = PyLong_CheckExact(arguments[0]) ? PyLong_AsUnsignedLongLong(arguments[0]) : 0;
  bool known = PyLong_CheckExact(arguments[0]) && PyErr_Occurred() == NULL;
  if (!known || self->kind != OF_CHANNEL) {
    PyErr_Clear();
    return PyLong_FromLong(-1);
  }
  int multiple = PyObject_IsTrue(arguments[1]);
  long disposition = multiple < 0 ? -1 : PyLong_AsLong(arguments[2]);
  if (disposition < 0) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_ValueError, "the disposition: 0 to 3");
    return NULL;
  }
  return PyLong_FromLong((long)sb_channel_settle(self->handle, tag, multiple != 0, (sb_disposition)disposition));
}
