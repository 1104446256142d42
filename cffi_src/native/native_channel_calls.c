// SPDX-License-Identifier: Apache-2.0
/* The call that applications make for each message that they publish: basic_publish of a channel. See
 * native_message.h. */
#include "native_message.h"

#include <structmember.h>

typedef struct {
  PyObject_HEAD PyObject *publisher; /* NULL or None: only Python publishes, since the channel is closed or in a tx */
  /* NULL or None; else called for the number of the message that was published, or of one that is transient */
  PyObject *number, *number_of_transient;
} ChannelCalls;

/* The arguments of basic_publish, in their order. */
enum { EXCHANGE, ROUTING_KEY, BODY, PROPERTIES, MANDATORY, TIMEOUT, COUNT };
static const char *const TEXTS[COUNT] = {"exchange", "routing_key", "body", "properties", "mandatory", "timeout"};
static PyObject *known[COUNT], *publish_slowly; /* interned strings */

bool sb_channel_names(void) {
  publish_slowly = PyUnicode_InternFromString("_publish_slowly");
  return publish_slowly != NULL && sb_intern(TEXTS, known, COUNT);
}

/* False: an exception is set. */
static bool read_arguments(PyObject **to, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  if (count > TIMEOUT) {
    PyErr_Format(PyExc_TypeError, "Channel.basic_publish() takes at most 6 positional arguments but %zd were given",
                 count + 1);
    return false;
  }
  for (Py_ssize_t i = 0; i < COUNT; i++) {
    to[i] = i < count ? arguments[i] : NULL;
  }
  for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    int index = sb_index_of(name, known, COUNT);
    if (index < 0 || to[index] != NULL) {
      PyErr_Format(PyExc_TypeError,
                   index < 0 ? "Channel.basic_publish() got an unexpected keyword argument '%U'"
                             : "Channel.basic_publish() got multiple values for argument '%U'",
                   name);
      return false;
    }
    to[index] = arguments[count + i];
  }
  for (int i = 0; i <= BODY; i++) {
    if (to[i] == NULL) {
      PyErr_Format(PyExc_TypeError, "Channel.basic_publish() missing a required argument: '%U'", known[i]);
      return false;
    }
  }
  if (to[PROPERTIES] == NULL) to[PROPERTIES] = Py_None;
  if (to[MANDATORY] == NULL) to[MANDATORY] = Py_False;
  if (to[TIMEOUT] == NULL) to[TIMEOUT] = Py_None;
  return true;
}

static PyObject *number_of(const ChannelCalls *self, PyObject *properties) {
  PyObject *number = self->number;
  if (number == NULL || number == Py_None) {
    Py_RETURN_NONE;
  }
  if (self->number_of_transient != NULL && sb_mode_is_transient(properties)) number = self->number_of_transient;
  PyObject *found = PyObject_CallNoArgs(Py_NewRef(number));
  Py_DECREF(number);
  return found;
}

static PyObject *channel_publish(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const ChannelCalls *self = (const ChannelCalls *)object;
  PyObject *given[COUNT];
  if (!read_arguments(given, arguments, count, names)) {
    return NULL;
  }
  PyObject *publisher = self->publisher;
  bool fast = publisher != NULL && Py_IS_TYPE(publisher, sb_publisher_type) && sb_is_good_timeout(given[TIMEOUT]);
  if (fast && sb_publish(publisher, given[EXCHANGE], given[ROUTING_KEY], given[BODY], given[PROPERTIES]) == SB_OK) {
    return number_of(self, given[PROPERTIES]);
  }
  PyErr_Clear(); /* that of a bad timeout: Python checks it again, and raises */
  return PyObject_CallMethodObjArgs(object, publish_slowly, given[EXCHANGE], given[ROUTING_KEY], given[BODY],
                                    given[PROPERTIES], given[MANDATORY], given[TIMEOUT], NULL);
}

/* ---- the type ---- */

static int calls_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(((ChannelCalls *)object)->publisher);
  Py_VISIT(((ChannelCalls *)object)->number);
  Py_VISIT(((ChannelCalls *)object)->number_of_transient);
  return 0;
}

static int calls_clear(PyObject *object) {
  Py_CLEAR(((ChannelCalls *)object)->publisher);
  Py_CLEAR(((ChannelCalls *)object)->number);
  Py_CLEAR(((ChannelCalls *)object)->number_of_transient);
  return 0;
}

static void calls_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)calls_clear(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef calls_methods[] = {
    {"basic_publish", (PyCFunction)(void (*)(void))channel_publish, METH_FASTCALL | METH_KEYWORDS,
     "basic_publish($self, exchange, routing_key, body, properties=None, mandatory=False, *, timeout=None)\n--\n\n"
     "Publishes a message.\n\n"
     "The broker does not answer a publish: a missing exchange closes the channel, and the next answered method "
     "raises\n"
     "the error.\n\n"
     "Args:\n"
     "    exchange: the exchange; empty: directly to the queue that the routing key names.\n"
     "    routing_key: up to 255 bytes of UTF-8.\n"
     "    body: bytes-like, up to 1 GiB.\n"
     "    properties: AMQP properties, as :class:`BasicProperties`.\n"
     "    mandatory: return the message if it is routed to no queue (:meth:`add_on_return_callback`).\n"
     "    timeout: seconds to wait for room in a queue that blocks, and for memory; ``None`` = for ever.\n\n"
     "Returns:\n"
     "    The number of the message in confirm mode, otherwise ``None``.\n\n"
     "Raises:\n"
     "    TypeError: the body is not bytes-like, or a name is no string.\n"
     "    queue.Full: there is no room in time; nothing was published."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef calls_members[] = {
    {"_publisher", T_OBJECT, offsetof(ChannelCalls, publisher), 0, NULL},
    {"_number", T_OBJECT, offsetof(ChannelCalls, number), 0, NULL},
    {"_number_of_transient", T_OBJECT, offsetof(ChannelCalls, number_of_transient), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot calls_slots[] = {
    {Py_tp_dealloc, (void *)calls_dealloc},
    {Py_tp_traverse, (void *)calls_traverse},
    {Py_tp_clear, (void *)calls_clear},
    {Py_tp_methods, calls_methods},
    {Py_tp_members, calls_members},
    {Py_tp_doc, (void *)"The calls of a channel for single messages; the base of shmbroker.Channel."},
    {0, NULL},
};
PyType_Spec sb_channel_calls_spec = {"shmbroker._native_message.ChannelCalls", sizeof(ChannelCalls), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, calls_slots};
