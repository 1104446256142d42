// SPDX-License-Identifier: Apache-2.0
/* The module _native_message: its types and functions. This file uses all other files of the folder. None of them uses
 * it. */
#include "native_message.h"

static PyObject *check_timeout(PyObject *module, PyObject *timeout) {
  (void)module;
  return sb_is_timeout(timeout) ? Py_NewRef(Py_None) : NULL;
}

static int add(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **type) {
  *type = (PyTypeObject *)PyType_FromSpec(spec);
  return *type != NULL && PyModule_AddObjectRef(module, name, (PyObject *)*type) == 0;
}

/* The numbers that Python must know. */
static const struct {
  const char *name;
  long value;
} NUMBERS[] = {
    {"OPEN", OPEN},
    {"SETTLED", SETTLED},
    {"BROWSED", BROWSED},
    {"FRESH", FRESH},
    {"OF_QUEUE", OF_QUEUE},
    {"OF_CONSUMER", OF_CONSUMER},
    {"OF_CHANNEL", OF_CHANNEL},
    {"MOST_MESSAGES", MOST_MESSAGES},
    {"MOST_QUEUES", MOST_QUEUES},
    {"NAMES", NAMES},
    {"CALLBACK", CALLBACK},
    {"RECORD_BYTES", (long)RECORD_BYTES},
    {"LONGEST_EXPIRATION_MS", LONGEST_EXPIRATION_MS},
};

static bool add_numbers(PyObject *module) {
  bool good = true;
  for (size_t i = 0; good && i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
    good = PyModule_AddIntConstant(module, NUMBERS[i].name, NUMBERS[i].value) == 0;
  }
  return good;
}

static int execute(PyObject *module) {
  PyTypeObject *messages_type, *sender_type, *queue_calls_type, *channel_calls_type, *consumer_calls_type, *route_type,
      *finalized_type;
  bool good =
      sb_view_names() && sb_finalizer_name() && sb_queue_names() && sb_put_names() && sb_reserve_names() &&
      sb_channel_names() && sb_consumer_names() && add(module, "InFlight", &sb_in_flight_spec, &sb_in_flight_type) &&
      add(module, "Record", &sb_record_spec, &sb_record_type) && add(module, "Batch", &sb_batch_spec, &sb_batch_type) &&
      add(module, "View", &sb_view_spec, &sb_view_type) &&
      add(module, "Receiver", &sb_receiver_spec, &sb_receiver_type) &&
      add(module, "Messages", &sb_messages_spec, &messages_type) &&
      add(module, "Sender", &sb_sender_spec, &sender_type) &&
      add(module, "QueueCalls", &sb_queue_calls_spec, &queue_calls_type) &&
      add(module, "ChannelCalls", &sb_channel_calls_spec, &channel_calls_type) &&
      add(module, "ConsumerCalls", &sb_consumer_calls_spec, &consumer_calls_type) &&
      add(module, "Properties", &sb_properties_spec, &sb_properties_type) && sb_properties_names() &&
      add(module, "Publisher", &sb_publisher_spec, &sb_publisher_type) &&
      add(module, "Route", &sb_route_spec, &route_type) &&
      add(module, "Finalized", &sb_finalized_spec, &finalized_type) &&
      add(module, "Writable", &sb_writable_spec, &sb_writable_type) &&
      add(module, "Reserving", &sb_reserving_spec, &sb_reserving_type) && add_numbers(module);
  if (good) sb_know_routes(route_type);
  return good ? 0 : -1;
}

static PyMethodDef functions[] = {
    {"check_timeout", check_timeout, METH_O,
     "check_timeout(timeout, /)\n--\n\nRaises:\n    ValueError: it is neither None nor seconds >= 0."},
    {"read_in_place", (PyCFunction)(void (*)(void))sb_read_in_place, METH_FASTCALL,
     "read_in_place(connection, slot, generation, length, /)\n--\n\n"},
    {"run_finalizer", (PyCFunction)(void (*)(void))sb_run_finalizer, METH_FASTCALL,
     "run_finalizer(finalizer, pointer, /)\n--\n\n"},
    {"untracked_type", sb_untracked_type, METH_O, "untracked_type(name, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "shmbroker._native_message", .m_methods = functions,
                                 .m_slots = slots};

PyMODINIT_FUNC PyInit__native_message(void) { return PyModuleDef_Init(&definition); }
