// Nets that are examples of the operators of recurrent networks, see OpExample.
#pragma once

namespace stepnet {

// h = tanh(x_t + h_prev + p) in full form, with its backward step net.
inline constexpr const char* kFullFormExample = R"(
  op {
    type: 'RecurrentNetwork' name: 'rnn' input: 'X' input: 'h0' input: 'p'
    output: 'h_all' output: 'h_last' output: 'steps'
    arg { name: 'step_net' n {
      name: 'step' external_input: 'x_t' external_input: 'h_prev' external_input: 'p' external_output: 'h'
      op { type: 'Sum' input: 'x_t' input: 'h_prev' input: 'p' output: 's' }
      op { type: 'Tanh' input: 's' output: 'h' } } }
    arg { name: 'timestep' s: 'timestep' }
    arg { name: 'recurrent_states' strings: 'h_states' }
    arg { name: 'initial_recurrent_state_ids' ints: 1 }
    arg { name: 'link_internal' strings: 'h_prev' strings: 'h' strings: 'x_t' }
    arg { name: 'link_external' strings: 'h_states' strings: 'h_states' strings: 'X' }
    arg { name: 'link_offset' ints: 0 ints: 1 ints: 0 }
    arg { name: 'alias_src' strings: 'h_states' strings: 'h_states' }
    arg { name: 'alias_dst' strings: 'h_all' strings: 'h_last' }
    arg { name: 'alias_offset' ints: 1 ints: -1 }
    arg { name: 'backward_step_net' n {
      name: 'backward_step' external_input: 'h' external_input: 'h_grad'
      op { type: 'TanhGradient' input: 'h' input: 'h_grad' output: 's_grad' is_gradient_op: true }
      op { type: 'Copy' input: 's_grad' output: 'x_t_grad' }
      op { type: 'Alias' input: 's_grad' output: 'p_grad' } } }
    arg { name: 'backward_link_internal' strings: 'h_grad' strings: 's_grad' strings: 'x_t_grad' }
    arg { name: 'backward_link_external' strings: 'h_states_grad' strings: 'h_states_grad' strings: 'X_grad' }
    arg { name: 'backward_link_offset' ints: 1 ints: 0 ints: 0 }
    arg { name: 'param' ints: 2 } arg { name: 'param_grads' strings: 'p_grad' }
    arg { name: 'outputs_with_grads' ints: 0 ints: 1 }
  })";

// h = tanh(x_t + W h_prev + b) in short form, from the last timestep to the first, of samples with lengths.
inline constexpr const char* kShortFormExample = R"(
  op {
    type: 'RecurrentNetwork' name: 'rnn' input: 'X' input: 'lengths' output: 'h_all' output: 'h_last' output: 'sums'
    [stepnet.recurrent] {
      step_net { name: 'step'
        op { type: 'FC' input: 'h_prev' input: 'W' input: 'b' output: 'g' arg { name: 'axis' i: 2 } }
        op { type: 'Sum' input: 'x_t' input: 'g' output: 's' }
        op { type: 'Tanh' input: 's' output: 'h' } }
      sequence { outer: 'X' inner: 'x_t' }
      state { input: 'h_prev' output: 'h' all: 'h_all' last: 'h_last' size: 2 }
      output { inner: 's' outer: 'sums' }
      lengths: 'lengths' reverse: true
    }
  })";

// A network that only runs forward, whose step blobs are fetched.
inline constexpr const char* kFetcherExample = R"(
  op {
    type: 'RecurrentNetwork' name: 'rnn' input: 'X' input: 'h0' output: 'h_all'
    [stepnet.recurrent] {
      step_net { name: 'step'
        op { type: 'Sum' input: 'x_t' input: 'h_prev' output: 's' }
        op { type: 'Tanh' input: 's' output: 'h' } }
      sequence { outer: 'X' inner: 'x_t' }
      state { input: 'h_prev' output: 'h' initial: 'h0' all: 'h_all' }
      forward_only: true
    }
  }
  op { type: 'RecurrentNetworkBlobFetcher' input: 'rnn/step_workspaces' output: 'names' })";

// A layer from zero states; both directions of one, of samples with lengths; and two layers from given states.
inline constexpr const char* kRnnExample = R"(
  op { type: 'RNN' name: 'rnn' input: 'X' input: '' input: 'w_ih' input: 'w_hh' input: 'b_ih' input: 'b_hh'
       output: 'Y' output: 'h_n' arg { name: 'hidden' i: 2 } })";
inline constexpr const char* kGruExample = R"(
  op { type: 'GRU' name: 'gru' input: 'X' input: '' input: 'w_ih' input: 'w_hh' input: 'b_ih' input: 'b_hh'
       input: 'v_ih' input: 'v_hh' input: 'c_ih' input: 'c_hh' input: 'lengths' output: 'Y' output: 'h_n'
       arg { name: 'hidden' i: 2 } arg { name: 'bidirectional' i: 1 } })";
inline constexpr const char* kLstmExample = R"(
  op { type: 'LSTM' name: 'lstm' input: 'X' input: 'h0' input: 'c0'
       input: 'w_ih' input: 'w_hh' input: 'b_ih' input: 'b_hh' input: 'v_ih' input: 'v_hh' input: 'c_ih' input: 'c_hh'
       output: 'Y' output: 'h_n' output: 'c_n'
       arg { name: 'hidden' i: 1 } arg { name: 'layers' i: 2 } arg { name: 'forget_bias' f: 0.5 } })";

}  // namespace stepnet
