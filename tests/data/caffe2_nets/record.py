# Makes nets with Caffe2's own builders, runs them there, and records them: for each case NAME.init.pbtxt (a net that
# fills parameters and inputs), NAME.net.pbtxt (as the builder made it) and NAME.expected.pbtxt (a net that fills what
# Caffe2 computed; its argument says after how many runs). Usage: python record.py FOLDER [--binary] [NAME...]
import os
import sys
import traceback
import types
from functools import partial

import numpy as np

np.asscalar = lambda a: a.item()  # which NumPy no longer has
sys.modules.setdefault('networkx', types.ModuleType('networkx'))  # of which nothing here is used
from caffe2.proto import caffe2_pb2
from caffe2.python import brew, core, crf, gru_cell, optimizer, rnn_cell, workspace
from caffe2.python.attention import AttentionType
from caffe2.python.model_helper import ModelHelper
from google.protobuf import text_format

FILLS = {'float32': ('GivenTensorFill', 'floats'), 'float64': ('GivenTensorDoubleFill', 'floats'),
         'int32': ('GivenTensorIntFill', 'ints'), 'int64': ('GivenTensorInt64Fill', 'ints'),
         'bool': ('GivenTensorBoolFill', 'ints'), 'object': ('GivenTensorStringFill', 'strings')}
CASES = {}
BINARY = '--binary' in sys.argv  # beside the text, and the net that the builder initialises parameters with


def case(name, iterations=1):
    def add(function):
        CASES[name] = (function, iterations)
        return function
    return add


def fill(name, value):
    value = np.asarray(value)
    kind, field = FILLS[value.dtype.name]
    op = caffe2_pb2.OperatorDef(type=kind, output=[name])
    op.arg.add(name='shape').ints.extend(value.shape)
    values = op.arg.add(name='values')
    if field == 'floats':
        values.floats.extend(value.flatten().tolist())
    elif field == 'ints':
        values.ints.extend([int(v) for v in value.flatten()])
    else:
        values.strings.extend(list(value.flatten()))
    return op


def is_tensor(value):
    return isinstance(value, (np.ndarray, float, int))


class Case:
    """A model, and the random values of its inputs."""

    def __init__(self, seed=1):
        self.model = ModelHelper(name='net')
        self.rng = np.random.RandomState(seed)
        self.wanted = []
        self.feeds = {}

    def feed(self, name, value):
        self.feeds[name] = np.asarray(value)
        self.model.net.AddExternalInput(name)
        return core.BlobReference(name)

    def normal(self, name, *shape):
        return self.feed(name, self.rng.normal(0, 0.7, shape).astype(np.float32))

    def ints(self, name, values, dtype=np.int32):
        return self.feed(name, np.array(values, dtype=dtype))

    def loss_of(self, *blobs):
        """Adds a loss that each of the blobs has a share in, and the gradients."""
        shares = []
        for blob in blobs:
            squares = self.model.net.Sqr([blob], str(blob).replace('/', '_') + '_squares')
            shares.append(self.model.net.AveragedLoss([squares], str(blob).replace('/', '_') + '_share'))
        loss = shares[0] if len(shares) == 1 else self.model.net.Sum(shares, 'loss')
        self.gradients(loss)

    def gradients(self, loss):
        self.wanted.append(loss)
        grads = self.model.AddGradientOperators([loss])
        for grad in grads.values():
            if isinstance(grad, core.GradientSlice):
                self.wanted += [grad.indices, grad.values]
            else:
                self.wanted.append(grad)
        for name in self.feeds:
            grad = self.model.net.Proto() and str(name) + '_grad'
            self.wanted.append(grad)


def values_of(names):
    found = {}
    for name in names:
        name = str(name)
        if workspace.HasBlob(name):
            value = workspace.FetchBlob(name)
            if is_tensor(value):
                found[name] = np.asarray(value)
    return found


def random_parameters(c):
    """Gives every trained parameter random values: the builders' zeros would hide mistakes."""
    trained = {str(p) for p in c.model.params} | {str(p) for p in c.model.GetParams()}
    for name in sorted(trained):
        if name in c.feeds or not workspace.HasBlob(name):
            continue
        value = workspace.FetchBlob(name)
        if value.dtype == np.float32:
            workspace.FeedBlob(name, c.rng.normal(0, 0.5, value.shape).astype(np.float32))


def record(folder, name, function, iterations):
    workspace.ResetWorkspace()
    core.Net._net_names_used.clear()  # names do not depend on what was recorded before
    optimizer.reset_optimizer_instance_count()
    np.random.seed(7)
    c = Case()
    function(c)
    for blob, value in c.feeds.items():
        workspace.FeedBlob(blob, value)
    workspace.RunNetOnce(c.model.param_init_net)
    random_parameters(c)
    init = caffe2_pb2.NetDef(name=name + '_init')
    made = [o for op in c.model.param_init_net.Proto().op for o in op.output]
    for blob, value in values_of(list(dict.fromkeys(made + list(c.feeds)))).items():
        init.op.extend([fill(blob, value)])
    for op in c.model.param_init_net.Proto().op:
        if op.type in ('CreateMutex',):
            init.op.extend([op])
    net = c.model.net.Proto()
    for i in range(iterations):
        workspace.RunNetOnce(c.model.net)
    outputs = [o for op in net.op for o in op.output]
    wanted = [str(w) for w in c.wanted if str(w) in outputs] + [o for o in net.external_output if o in outputs]
    expected = caffe2_pb2.NetDef(name=name + '_expected')
    expected.arg.add(name='iterations').i = iterations
    for blob, value in values_of(list(dict.fromkeys(wanted))).items():
        expected.op.extend([fill(blob, value)])
    nets = {'init': init, 'net': net, 'expected': expected}
    if BINARY:
        nets['builder_init'] = c.model.param_init_net.Proto()
    for suffix, proto in nets.items():
        base = os.path.join(folder, name + '.' + suffix)
        with open(base + '.pbtxt', 'w') as f:
            f.write(text_of_net(proto))
        if BINARY:
            with open(base + '.pb', 'wb') as f:
                f.write(proto.SerializeToString())
    return len(expected.op)


def text_of_net(net, indent=''):
    """The net as text, with an operator on a line, and nets in arguments below it."""
    lines = []
    for op in net.op:
        plain = caffe2_pb2.OperatorDef()
        plain.CopyFrom(op)
        nets = [a for a in op.arg if a.HasField('n')]
        del plain.arg[:]
        plain.arg.extend([a for a in op.arg if not a.HasField('n')])
        lines.append(indent + 'op { ' + text_format.MessageToString(plain, as_one_line=True, use_short_repeated_primitives=True))
        for a in nets:
            lines.append('%s  arg { name: "%s" n {' % (indent, a.name))
            lines.append(text_of_net(a.n, indent + '    ').rstrip('\n'))
            lines.append(indent + '  } }')
        if nets:
            lines.append(indent + '}')
        else:
            lines[-1] += ' }'
    rest = caffe2_pb2.NetDef()
    rest.CopyFrom(net)
    del rest.op[:]
    return '\n'.join([indent + text_format.MessageToString(rest, as_one_line=True)] + lines) + '\n'


T, B, D, H = 3, 2, 3, 2  # timesteps, samples, width of the input, width of a layer


# Layers of one cell, and of several.
def layer(builder, states, c, lengths=True, sizes=H, outputs=(0,), no_states=False, **kwargs):
    x = c.normal('x', T, B, D)
    seq_lengths = c.ints('seq_lengths', [3, 1]) if lengths else None
    layers = sizes if isinstance(sizes, list) else [sizes]
    initial = None
    if not no_states:
        initial = [c.normal('%s%d' % (s, i), *shape(n)) for i, n in enumerate(layers) for s, shape in states]
    results = builder(model=c.model, input_blob=x, seq_lengths=seq_lengths, initial_states=initial, dim_in=D,
                      dim_out=sizes, scope='layer', outputs_with_grads=outputs, **kwargs)
    c.wanted += list(results)
    if kwargs.get('forward_only'):
        c.wanted += list(results)
    else:
        c.loss_of(*[results[i] for i in outputs])


H_STATE = [('h', lambda n: (1, B, n))]
HC_STATES = [('h', lambda n: (1, B, n)), ('c', lambda n: (1, B, n))]
VECTORS = [('h', lambda n: (n,)), ('c', lambda n: (n,))]
BUILDERS = {
    'lstm': (rnn_cell.LSTM, HC_STATES, {}),
    'milstm': (rnn_cell.MILSTM, HC_STATES, {}),
    'layer_norm_lstm': (rnn_cell.LayerNormLSTM, HC_STATES, {}),
    'layer_norm_milstm': (rnn_cell.LayerNormMILSTM, HC_STATES, {}),
    'gru': (gru_cell.GRU, H_STATE, {}),
    'gru_linear_before_reset': (gru_cell.GRU, H_STATE, {'linear_before_reset': True}),
    'rnn_tanh': (rnn_cell.BasicRNN, H_STATE, {'activation': 'tanh'}),
    'rnn_relu': (rnn_cell.BasicRNN, H_STATE, {'activation': 'relu'}),
}
VARIANTS = {
    '': {},
    'no_lengths': {'lengths': False},
    'forward_only': {'forward_only': True},
    'drop_states': {'drop_states': True},
    'recomputed': {'memory_optimization': True},
    'unrolled': {'static_rnn_unroll_size': T},
    'unrolled_dropped': {'static_rnn_unroll_size': T, 'drop_states': True},
    'forget_bias': {'forget_bias': 1.5},
    'last': {'outputs': (1,)},
    'both': {'outputs': (0, 1)},
    'two_layers': {'sizes': [2, 3]},
    'three_layers': {'sizes': [3, 2, 3]},
    'two_layers_unrolled': {'sizes': [2, 3], 'static_rnn_unroll_size': T},
    'two_layers_forward_only': {'sizes': [2, 3], 'forward_only': True},
}
for kind, (builder, states, kwargs) in BUILDERS.items():
    for variant, more in VARIANTS.items():
        if states is H_STATE and 'layers' in variant:
            continue  # the builder's offsets are those of two states a layer
        if 'rnn' in kind and 'forward_only' not in variant and 'no_lengths' not in variant:
            continue  # with lengths Caffe2 derives no gradient of this cell
        case(kind + ('_' + variant if variant else ''))(partial(layer, builder, states, **kwargs, **more))
    if states is HC_STATES:
        case(kind + '_all_outputs')(partial(layer, builder, states, outputs=(0, 1, 2, 3), **kwargs))
        case(kind + '_vector_states')(partial(layer, builder, VECTORS, **kwargs))
case('layered_lstm')(partial(layer, rnn_cell.layered_LSTM, HC_STATES, sizes=[2]))


def stacked(c, cells, residual=None, lengths=True, forward_only=False, unroll=None, states='hc'):
    x = c.normal('x', T, B, D)
    seq_lengths = c.ints('seq_lengths', [3, 1]) if lengths else None
    cell = rnn_cell.MultiRNNCell(cells, name='stack', residual_output_layers=residual, forward_only=forward_only)
    if unroll:
        cell = rnn_cell.UnrolledCell(cell, unroll)
    names = cells_states(cells)
    initial = [c.normal('s%d' % i, 1, B, D) for i in range(names)]
    inner = cell.cell if unroll else cell
    grads = [2 * i for i in inner.output_indices]
    out, results = cell.apply_over_sequence(model=c.model, inputs=x, seq_lengths=seq_lengths, initial_states=initial,
                                            outputs_with_grads=grads)
    c.wanted += [out] + list(results)
    if not forward_only:
        c.loss_of(out)


def cells_states(cells):
    return sum(len(cell.get_state_names()) for cell in cells)


def lstm_cell(name, **kwargs):
    return rnn_cell.LSTMCell(input_size=D, hidden_size=D, forget_bias=0.5, memory_optimization=False, name=name, **kwargs)


def gru_of(name, **kwargs):
    return gru_cell.GRUCell(input_size=D, hidden_size=D, forget_bias=0.0, memory_optimization=False, name=name, **kwargs)


for n, residual in ((2, [1]), (3, [1]), (3, [1, 2]), (4, [2, 3])):
    title = 'residual_lstm_%d_%s' % (n, '_'.join(map(str, residual)))
    case(title)(lambda c, n=n, r=residual: stacked(c, [lstm_cell('l%d' % i) for i in range(n)], r))
case('residual_lstm_unrolled')(lambda c: stacked(c, [lstm_cell('l%d' % i) for i in range(3)], [1, 2], unroll=T))
case('residual_lstm_forward_only')(
    lambda c: stacked(c, [lstm_cell('l%d' % i, forward_only=True) for i in range(3)], [1, 2], forward_only=True))
case('residual_gru')(lambda c: stacked(c, [gru_of('l%d' % i) for i in range(3)], [1, 2]))
case('gru_over_lstm')(lambda c: stacked(c, [lstm_cell('l0'), gru_of('l1')], [1]))
case('gru_two_layers')(lambda c: stacked(c, [gru_of('l0'), gru_of('l1')]))
case('lstm_initial_states_of_the_builder')(
    lambda c: initialised(c, [rnn_cell.LSTMCell(D, D, 0.0, False, name='one', initializer=rnn_cell.LSTMInitializer(D))]))


def initialised(c, cells):
    x = c.normal('x', T, B, D)
    out, results = cells[0].apply_over_sequence(model=c.model, inputs=x, seq_lengths=c.ints('seq_lengths', [3, 1]))
    c.wanted += [out] + list(results)
    c.loss_of(out)


@case('dropout_cell_testing')
def dropout_cell(c, is_test=True):
    cells = [rnn_cell.DropoutCell(lstm_cell('l%d' % i), dropout_ratio=0.3, is_test=is_test, name='d%d' % i) for i in range(2)]
    x = c.normal('x', T, B, D)
    cell = rnn_cell.MultiRNNCell(cells, name='stack')
    initial = [c.normal('s%d' % i, 1, B, D) for i in range(4)]
    out, results = cell.apply_over_sequence(model=c.model, inputs=x, seq_lengths=c.ints('seq_lengths', [3, 1]),
                                            initial_states=initial)
    c.wanted += [out] + list(results)


@case('initial_states_learnt_two_layers')
def learnt_states(c):
    layer(rnn_cell.LSTM, HC_STATES, c, sizes=[2, 3], no_states=False)


# Attention.
KINDS = {'regular': AttentionType.Regular, 'recurrent': AttentionType.Recurrent, 'dot': AttentionType.Dot,
         'soft_coverage': AttentionType.SoftCoverage}
E, S = 3, 4  # the encoder's width and its length


def attending(kind, c, lengths=True, outputs=(0, 4), encoder_width=E, decoder=H, **kwargs):
    x = c.normal('x', T, B, 2)
    encoded = c.normal('encoded', S, B, encoder_width)
    encoder_lengths = c.ints('encoder_lengths', [4, 2]) if lengths else None
    results = rnn_cell.LSTMWithAttention(
        model=c.model, decoder_inputs=x, decoder_input_lengths=c.ints('decoder_lengths', [3, 2]),
        initial_decoder_hidden_state=c.normal('h0', 1, B, decoder), initial_decoder_cell_state=c.normal('c0', 1, B, decoder),
        initial_attention_weighted_encoder_context=c.normal('context0', 1, B, encoder_width),
        encoder_output_dim=encoder_width, encoder_outputs=encoded, encoder_lengths=encoder_lengths, decoder_input_dim=2,
        decoder_state_dim=decoder, scope='attending', attention_type=KINDS[kind], outputs_with_grads=outputs, **kwargs)
    c.wanted += list(results)
    if not kwargs.get('forward_only'):
        c.loss_of(*[results[i] for i in outputs])


for kind in KINDS:
    case('attention_' + kind)(partial(attending, kind))
    case('attention_%s_no_lengths' % kind)(partial(attending, kind, lengths=False))
    case('attention_%s_recomputed' % kind)(
        partial(attending, kind, attention_memory_optimization=True, lstm_memory_optimization=True))
    case('attention_%s_forward_only' % kind)(partial(attending, kind, forward_only=True))
    case('attention_%s_context_only' % kind)(partial(attending, kind, outputs=(4,)))
case('attention_dot_same_width')(partial(attending, 'dot', encoder_width=H))
case('attention_regular_wide')(partial(attending, 'regular', encoder_width=6, decoder=5))


def attention_over(kind, c, cell_of, residual=None, states=None, recompute=False):
    x = c.normal('x', T, B, D)
    encoded = c.normal('encoded', S, B, E)
    inner = cell_of()
    cell = rnn_cell.AttentionCell(
        encoder_output_dim=E, encoder_outputs=encoded, encoder_lengths=c.ints('encoder_lengths', [4, 2]), decoder_cell=inner,
        decoder_state_dim=D, name='attending', attention_type=KINDS[kind], weighted_encoder_outputs=None,
        attention_memory_optimization=recompute)
    n = len(inner.get_state_names())
    initial = [c.normal('s%d' % i, 1, B, D) for i in range(n)] + [c.normal('context0', 1, B, E)]
    if kind == 'soft_coverage':
        initial.append(cell.build_initial_coverage(c.model))
    indices = list(getattr(inner, 'output_indices', [0])) + [n]
    out, results = cell.apply_over_sequence(model=c.model, inputs=x, seq_lengths=c.ints('seq_lengths', [3, 2]),
                                            initial_states=initial, outputs_with_grads=[2 * i for i in indices])
    c.wanted += [out] + list(results)
    c.loss_of(out)


def milstm():
    return rnn_cell.MILSTMCell(input_size=D, hidden_size=D, forget_bias=0.0, memory_optimization=False, name='inner')


def layer_norm():
    return rnn_cell.LayerNormLSTMCell(input_size=D, hidden_size=D, forget_bias=0.0, memory_optimization=False, name='inner')


def layer_norm_milstm():
    return rnn_cell.LayerNormMILSTMCell(input_size=D, hidden_size=D, forget_bias=0.0, memory_optimization=False, name='inner')


def two_lstms(residual=None):
    return rnn_cell.MultiRNNCell([lstm_cell('l0'), lstm_cell('l1')], name='stack', residual_output_layers=residual)


for kind in KINDS:
    case('attention_%s_milstm' % kind)(partial(attention_over, kind, cell_of=milstm))
    case('attention_%s_two_layers' % kind)(partial(attention_over, kind, cell_of=two_lstms))
    case('attention_%s_residual' % kind)(partial(attention_over, kind, cell_of=partial(two_lstms, [1])))
    case('attention_%s_layer_norm' % kind)(partial(attention_over, kind, cell_of=layer_norm))
    case('attention_%s_layer_norm_milstm' % kind)(partial(attention_over, kind, cell_of=layer_norm_milstm))
    case('attention_%s_two_layers_recomputed' % kind)(partial(attention_over, kind, cell_of=two_lstms, recompute=True))


# Models.
@case('char_rnn', 3)
def char_rnn(c, build=None, layer_of=None):
    width, hidden = 5, 4
    one_hot = np.eye(width, dtype=np.float32)[c.rng.randint(0, width, (T, B))]
    x = c.feed('input_blob', one_hot)
    lengths = c.ints('seq_lengths', [T] * B)
    h, cell = c.normal('hidden_init', 1, B, hidden), c.normal('cell_init', 1, B, hidden)
    target = c.ints('target', c.rng.randint(0, width, T * B))
    m = c.model
    all_h, last_h, _, last_c = rnn_cell.LSTM(m, x, lengths, (h, cell), width, hidden, scope='LSTM')
    output = brew.fc(m, all_h, None, dim_in=hidden, dim_out=width, axis=2)
    softmax = m.net.Softmax(output, 'softmax', axis=2)
    reshaped, _ = m.net.Reshape(softmax, ['softmax_reshaped', '_'], shape=[-1, width])
    xent = m.net.LabelCrossEntropy([reshaped, target], 'xent')
    c.gradients(m.net.AveragedLoss(xent, 'loss'))
    c.wanted += [softmax, last_h, last_c, xent] + [str(p) for p in m.params]
    optimizer.build_sgd(m, base_learning_rate=0.1 * T, policy='step', stepsize=1, gamma=0.9999)


def classifier(c, build, **kwargs):
    """A small network of two products with an optimizer over it."""
    m = c.model
    x = c.normal('data', 6, 4)
    label = c.ints('label', c.rng.randint(0, 3, 6))
    hidden = brew.relu(m, brew.fc(m, x, 'fc1', 4, 5), 'hidden')
    out = brew.fc(m, hidden, 'fc2', 5, 3)
    softmax, loss = m.net.SoftmaxWithLoss([out, label], ['softmax', 'loss'])
    c.gradients(loss)
    build(m, **kwargs)
    updates(c)


def updates(c):
    """All that is written in place: parameters and the optimizer's state."""
    for op in c.model.net.Proto().op:
        c.wanted += [o for o in op.output if o in op.input]


def embedded(c, build, **kwargs):
    """An embedding, whose gradient is sparse."""
    m = c.model
    table = m.param_init_net.ConstantFill([], 'table', shape=[7, 3], value=0.0)
    m.AddParameter(table)
    out = m.net.Gather([table, c.ints('words', [1, 5, 1, 6, 0])], 'words_of')
    if not kwargs.get('rowWise'):
        out = brew.fc(m, out, 'fc', 3, 4)
    softmax, loss = m.net.SoftmaxWithLoss([out, c.ints('label', [0, 2, 1, 2, 2])], ['softmax', 'loss'])
    c.gradients(loss)
    build(m, **kwargs)
    updates(c)


OPTIMIZERS = {
    'sgd': (optimizer.build_sgd, dict(base_learning_rate=0.1)),
    'sgd_momentum': (optimizer.build_sgd, dict(base_learning_rate=0.1, momentum=0.9)),
    'sgd_nesterov': (optimizer.build_sgd, dict(base_learning_rate=0.1, momentum=0.9, nesterov=1)),
    'sgd_clipped': (optimizer.build_sgd, dict(base_learning_rate=0.1, max_gradient_norm=0.05)),
    'sgd_momentum_clipped': (optimizer.build_sgd, dict(base_learning_rate=0.1, momentum=0.9, max_gradient_norm=0.05)),
    'sgd_injected': (optimizer.build_sgd, dict(base_learning_rate=0.1, allow_lr_injection=True)),
    'sgd_clipped_injected': (optimizer.build_sgd, dict(base_learning_rate=0.1, max_gradient_norm=0.05, allow_lr_injection=True)),
    'sgd_lars': (optimizer.build_sgd, dict(base_learning_rate=0.1, lars=0.5)),
    'sgd_step': (optimizer.build_sgd, dict(base_learning_rate=0.1, policy='step', stepsize=1, gamma=0.9)),
    'sgd_exp': (optimizer.build_sgd, dict(base_learning_rate=0.1, policy='exp', gamma=0.9)),
    'sgd_inv': (optimizer.build_sgd, dict(base_learning_rate=0.1, policy='inv', gamma=0.9, power=0.5)),
    'sgd_poly': (optimizer.build_sgd, dict(base_learning_rate=0.1, policy='poly', power=0.5, max_iter=10)),
    'sgd_warmup': (optimizer.build_sgd, dict(base_learning_rate=0.1, policy='linearWarmup', start_multiplier=0.1, num_iter=3)),
    'adagrad': (optimizer.build_adagrad, dict(base_learning_rate=0.1)),
    'adagrad_clipped': (optimizer.build_adagrad, dict(base_learning_rate=0.1, max_gradient_norm=0.05)),
    'adagrad_decayed': (optimizer.build_adagrad, dict(base_learning_rate=0.1, decay=0.9, epsilon=1e-3)),
    'adagrad_weight_decay': (optimizer.build_adagrad, dict(base_learning_rate=0.1, weight_decay=0.01)),
    'adagrad_outputs': (optimizer.build_adagrad, dict(base_learning_rate=0.1, output_effective_lr=True)),
    'adagrad_outputs_update': (
        optimizer.build_adagrad, dict(base_learning_rate=0.1, output_effective_lr_and_update=True)),
    'rmsprop': (optimizer.build_rms_prop, dict(base_learning_rate=0.1)),
    'rmsprop_momentum': (optimizer.build_rms_prop, dict(base_learning_rate=0.1, momentum=0.8, decay=0.7, epsilon=1e-3)),
    'rmsprop_clipped': (optimizer.build_rms_prop, dict(base_learning_rate=0.1, max_gradient_norm=0.05)),
    'adam': (optimizer.build_adam, dict(base_learning_rate=0.1)),
    'adam_options': (optimizer.build_adam, dict(base_learning_rate=0.1, beta1=0.7, beta2=0.8, epsilon=1e-3)),
    'adam_clipped': (optimizer.build_adam, dict(base_learning_rate=0.1, max_gradient_norm=0.05)),
    'adadelta': (optimizer.build_adadelta, dict(base_learning_rate=0.1)),
    'decay_adagrad': (optimizer.build_decay_adagrad, dict(base_learning_rate=0.1)),
    'ftrl': (optimizer.build_ftrl, dict(engine='', alpha=0.1, beta=1.0, lambda1=0.01, lambda2=0.1)),
    'gftrl': (optimizer.build_gftrl, dict(alpha=0.1, beta=1.0, lambda1=0.01, lambda2=0.1)),
    'yellowfin': (optimizer.build_yellowfin, dict(base_learning_rate=0.1)),
    'wngrad': (optimizer.build_wngrad, dict(base_learning_rate=0.1)),
    'storm': (optimizer.build_storm, dict(base_learning_rate=0.1)),
}
SPARSE = ('sgd', 'sgd_clipped', 'adagrad', 'adagrad_clipped', 'adam', 'adadelta', 'ftrl', 'wngrad', 'storm',
          'adagrad_rowwise', 'adam_rowwise', 'adagrad_weight_decay')
for title, (build, kwargs) in OPTIMIZERS.items():
    case(title, 4)(partial(classifier, build=build, **kwargs))
ROWWISE = {'adagrad_rowwise': (optimizer.build_adagrad, dict(base_learning_rate=0.1, rowWise=True)),
           'adam_rowwise': (optimizer.build_adam, dict(base_learning_rate=0.1, rowWise=True))}
for title in SPARSE:
    build, kwargs = {**OPTIMIZERS, **ROWWISE}[title]
    case('sparse_' + title, 4)(partial(embedded, build=build, **kwargs))


@case('weight_decay', 3)
def weight_decay(c):
    def build(m, **kwargs):
        optimizer.add_weight_decay(m, 0.01)
        optimizer.build_sgd(m, base_learning_rate=0.1, momentum=0.9)
    classifier(c, build)


def conditional_random_field(c, words, tags):
    m = c.model
    features = c.normal('features', words, 4)
    labels = c.ints('labels', c.rng.randint(0, tags, words), np.int64)
    scores = brew.fc(m, features, 'fc_0', 4, tags)
    transitions = c.normal('crf_transitions', tags + 2, tags + 2)
    layer = crf.CRFWithLoss(m, tags, transitions)
    loss = layer.crf_loss(scores, labels)
    c.gradients(loss)


case('crf')(partial(conditional_random_field, words=4, tags=3))
case('crf_one_tag')(partial(conditional_random_field, words=2, tags=1))


# Sequence to sequence.
def seq2seq(c, attention_type='regular', encoder=None, decoder=None, bidirectional=False, iterations=3):
    from caffe2.python.models.seq2seq.train import Seq2SeqModelCaffe2
    encoder = encoder or [4]
    decoder = decoder or [4]
    params = dict(
        attention=attention_type,
        decoder_layer_configs=[dict(num_units=n) if not isinstance(n, dict) else n for n in decoder],
        encoder_type=dict(encoder_layer_configs=[dict(num_units=n) for n in encoder],
                          use_bidirectional_encoder=bidirectional),
        batch_size=3, optimizer_params=dict(learning_rate=0.1), encoder_embedding_size=3, decoder_embedding_size=3,
        decoder_softmax_size=None, max_gradient_norm=0.5)
    model = Seq2SeqModelCaffe2(params, 8, 9, 0)
    model.initialize_from_scratch()
    workspace.ResetWorkspace()
    c.model = model.model
    feeds = {'encoder_inputs': c.rng.randint(3, 8, (5, 3)), 'encoder_lengths': [5, 3, 2],
             'decoder_inputs': c.rng.randint(3, 9, (4, 3)), 'decoder_lengths': [4, 2, 3],
             'targets': c.rng.randint(3, 9, (4, 3))}
    for name, value in feeds.items():
        c.feeds[name] = np.array(value, dtype=np.int32)
    weights = np.array([[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 0, 0]], dtype=np.float32)
    c.feeds['target_weights'] = weights
    outputs = [o for op in c.model.net.Proto().op for o in op.output]
    c.wanted += [o for o in outputs if o.endswith('_grad') or 'loss' in o or o in c.model.net.Proto().external_output]
    updates(c)


case('seq2seq', 3)(partial(seq2seq))
case('seq2seq_no_attention', 3)(partial(seq2seq, attention_type='none'))
case('seq2seq_bidirectional', 3)(partial(seq2seq, bidirectional=True, encoder=[2], decoder=[4]))
case('seq2seq_two_layers', 3)(partial(seq2seq, bidirectional=True, encoder=[2, 4], decoder=[3, 4]))
case('seq2seq_residual', 3)(
    partial(seq2seq, encoder=[4, 4], decoder=[dict(num_units=4), dict(num_units=4, residual=True)]))


def beam_search(c, models=1, attention_type='regular', encoder=None, decoder=None, bidirectional=False):
    from caffe2.python.models.seq2seq.translate import Seq2SeqModelCaffe2EnsembleDecoder
    params = dict(
        attention=attention_type, decoder_layer_configs=[dict(num_units=n) for n in decoder or [4]],
        encoder_type=dict(encoder_layer_configs=[dict(num_units=n) for n in encoder or [4]],
                          use_bidirectional_encoder=bidirectional),
        encoder_embedding_size=3, decoder_embedding_size=3, decoder_softmax_size=None, batch_size=1,
        optimizer_params=dict(learning_rate=0.1), max_gradient_norm=1.0)
    vocabulary = {i: str(i) for i in range(8)}
    decoding = Seq2SeqModelCaffe2EnsembleDecoder(dict(
        ensemble_models=[dict(source_vocab=vocabulary, target_vocab=vocabulary, model_params=params, model_file='')
                         for _ in range(models)],
        decoding_params=dict(beam_size=3, word_reward=0.1, unk_reward=-0.2)))
    c.model = decoding.model
    workspace.ResetWorkspace()
    c.feeds['encoder_inputs'] = np.array([[4], [3], [7], [5]], dtype=np.int32)
    c.feeds['encoder_lengths'] = np.array([4], dtype=np.int32)
    c.feeds['max_output_seq_len'] = np.array([6], dtype=np.int64)
    c.wanted += [decoding.output_token_beam_list, decoding.output_prev_index_beam_list, decoding.output_score_beam_list,
                 decoding.output_attention_weights_beam_list]


case('beam_search')(beam_search)
case('beam_search_no_attention')(partial(beam_search, attention_type='none'))
case('beam_search_two_models')(partial(beam_search, models=2))
case('beam_search_two_layers')(partial(beam_search, bidirectional=True, encoder=[2, 4], decoder=[3, 4]))


def words(c, build, cell=rnn_cell.LSTM, states=2, share=False, net_type=None, **kwargs):
    """Words in, the next word out: an embedding, a layer, a product, and an optimizer over them."""
    m = c.model
    if net_type:
        m.net.Proto().type = net_type
    table = m.param_init_net.GaussianFill([], 'embedding', shape=[7, D])
    m.AddParameter(table)
    ids = c.ints('ids', c.rng.randint(0, 7, (T, B)))
    x = m.net.Gather([table, ids], 'embedded')
    initial = [c.normal('s%d' % i, 1, B, H) for i in range(states)]
    out = cell(m, x, c.ints('seq_lengths', [3, 1]), initial, D, H, 'layer')[0]
    logits = brew.fc(m, out, 'logits', H, 7, axis=2)
    logits, _ = m.net.Reshape(logits, ['flat', 'flat_old_shape'], shape=[-1, 7])
    weights = c.feed('weights', np.array([1, 1, 1, 0, 1, 0], dtype=np.float32))
    softmax, loss = m.net.SoftmaxWithLoss([logits, c.ints('targets', c.rng.randint(0, 7, T * B)), weights],
                                          ['softmax', 'loss'])
    c.gradients(loss)
    build(m, **kwargs)
    updates(c)
    if share:
        from caffe2.python import memonger
        shared = memonger.share_grad_blobs(m.net, [loss], set(m.param_to_grad.values()), '', dont_share_blobs=set(),
                                           share_activations=share == 'activations')
        m.net._net.CopyFrom(shared)


for kind in ('adam', 'adagrad', 'sgd'):
    case('words_' + kind, 3)(partial(words, build=OPTIMIZERS[kind][0], **OPTIMIZERS[kind][1]))
case('words_gru_adam', 3)(partial(words, build=OPTIMIZERS['adam'][0], cell=gru_cell.GRU, states=1, **OPTIMIZERS['adam'][1]))
case('words_dag', 3)(partial(words, build=OPTIMIZERS['adam'][0], net_type='dag', **OPTIMIZERS['adam'][1]))
case('words_async', 3)(partial(words, build=OPTIMIZERS['adam'][0], net_type='async_scheduling', **OPTIMIZERS['adam'][1]))


@case('counted_loop')
def counted_loop(c):
    from caffe2.python.net_builder import NetBuilder, ops
    x = c.normal('x', 2, 3)
    with NetBuilder(_use_control_ops=True, initial_scope=['x']) as nb:
        ops.Copy(ops.Const(0), 'i')
        ops.Copy(ops.Const(3), 'n')
        ops.Copy(x, 'y')
        with ops.WhileNet():
            with ops.Condition():
                ops.Add(['i', ops.Const(1)], ['i'])
                ops.LE(['i', 'n'])
            ops.Add(['y', x], ['y'])
    c.model.net = core.Net(nb.get()[0].Proto()) if False else nb.get()[0]
    c.wanted += ['y', 'i']


@case('choice')
def choice(c, value=True):
    from caffe2.python.net_builder import NetBuilder, ops
    c.feed('condition', np.array(value))
    x = c.normal('x', 2, 3)
    with NetBuilder(_use_control_ops=True, initial_scope=['x', 'condition']) as nb:
        ops.Copy(x, 'y')
        with ops.IfNet('condition'):
            ops.Add(['x', 'x'], 'y')
        with ops.Else():
            ops.Mul(['x', 'x'], 'y')
    c.model.net = nb.get()[0]
    c.wanted += ['y']


case('choice_else')(partial(choice, value=False))


@case('choice_gradient')
def choice_gradient(c, value=True):
    from caffe2.python.net_builder import NetBuilder, ops
    c.feed('condition', np.array(value))
    x = c.normal('x', 2, 3)
    with NetBuilder(_use_control_ops=True, initial_scope=['x', 'condition']) as nb:
        with ops.IfNet('condition'):
            ops.Add(['x', 'x'], 'y')
        with ops.Else():
            ops.Mul(['x', 'x'], 'y')
        ops.SumElements('y', 'loss')
    c.model.net = nb.get()[0]
    c.model.net.AddGradientOperators(['loss'])
    c.wanted += ['y', 'loss', 'x_grad']


@case('two_devices', 2)
def two_devices(c):
    from caffe2.python import data_parallel_model
    c.model = ModelHelper(name='parallel')

    def forward(m, loss_scale):
        x = 'x_%s' % m._device_prefix + str(m._current) if False else 'data'
        fc = brew.fc(m, 'data', 'fc', 4, 3)
        softmax, loss = m.net.SoftmaxWithLoss([fc, 'label'], ['softmax', 'loss'])
        return [m.net.Scale(loss, 'scaled_loss', scale=loss_scale)]

    data_parallel_model.Parallelize_CPU(
        c.model, input_builder_fun=lambda m: None, forward_pass_builder_fun=forward,
        optimizer_builder_fun=lambda m: optimizer.build_sgd(m, base_learning_rate=0.1, momentum=0.9), devices=[0, 1])
    for i in range(2):
        c.feeds['cpu_%d/data' % i] = c.rng.normal(0, 1, (5, 4)).astype(np.float32)
        c.feeds['cpu_%d/label' % i] = c.rng.randint(0, 3, 5).astype(np.int32)
    updates(c)


def main():
    folder, names = sys.argv[1], [a for a in sys.argv[2:] if a != '--binary']
    os.makedirs(folder, exist_ok=True)
    for name in names or CASES:
        function, iterations = CASES[name]
        try:
            count = record(folder, name, function, iterations)
            print(name, count)
        except Exception as e:
            print(name, 'NOT MADE:', type(e).__name__, str(e).strip().split('\n')[0][:200])
            if names:
                traceback.print_exc()


if __name__ == '__main__':
    main()
