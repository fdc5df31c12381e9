// The floor: the matrix products of an LSTM and nothing else, by oneDNN's matmul.
//
// Per layer: one product for all steps' inputs and one for each step's state; in training for each step the gradient of
// the state, and one each for the gradients of the inputs and of both weights. Weights are in the primitives' own
// layout before anything is timed.
#include "tools/bench/lstm_case.h"
#include "tools/bench/onednn.h"

namespace stepnet::bench {
namespace {

using dnnl::matmul;
using dnnl::memory;

// A matrix in plain layout: [rows, columns], read transposed if `transposed`.
memory matrix(int64_t rows, int64_t columns) {
  return with_values(floats({rows, columns}, Tag::ab), std::vector<float>(static_cast<size_t>(rows * columns), 0.01F));
}

memory transposed(const memory& m) {
  const memory::dims dims = m.get_desc().dims();
  return {floats({dims[1], dims[0]}, Tag::ba), cpu(), m.get_data_handle()};
}

// Rows begin ... begin + count of a plain matrix.
memory rows(const memory& m, int64_t begin, int64_t count) {
  const int64_t columns = m.get_desc().dims()[1];
  return {floats({count, columns}, Tag::ab), cpu(), static_cast<float*>(m.get_data_handle()) + begin * columns};
}

// c (+)= a b for many a and c of one shape and one b, which is packed if it is a weight.
class Product {
 public:
  Product(const memory& a, const memory& b, const memory& c, bool packed, bool add) {
    dnnl::primitive_attr attributes;
    if (add) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const memory::desc right = packed ? floats(b.get_desc().dims(), Tag::any) : b.get_desc();
    const matmul::primitive_desc desc(matmul::desc(a.get_desc(), right, c.get_desc()), attributes, cpu());
    const Reordered weights(b, desc.weights_desc());
    weights.run();
    b_ = weights.memory();
    matmul_ = matmul(desc);
  }

  Execution on(const memory& a, const memory& c) const {
    return {matmul_, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c}}};
  }

 private:
  memory b_;
  dnnl::primitive matmul_;
};

class Products : public Contender {
 public:
  Products(const Size& size, Mode mode) : Contender("products") {
    const int64_t all = size.steps * size.batch;
    const int64_t gates = 4 * size.hidden;
    for (int k = 0; k < size.layers; ++k) {
      const int64_t inputs = size.layer_inputs(k);
      const Layer l = {size,
                       matrix(all, inputs),
                       matrix(all + size.batch, size.hidden),
                       matrix(all, gates),
                       matrix(gates, inputs),
                       matrix(gates, size.hidden)};
      add_forward(l);
      if (mode == Mode::training) add_backward(l);
      kept_.push_back(l);
    }
    cpu_stream().wait();
  }

  void run() override {
    for (const Execution& product : products_) product.run();
    cpu_stream().wait();
  }

 private:
  struct Layer {
    Size size;
    memory x, h, gates, w_x, w_h;
  };

  void add_forward(const Layer& l) {
    const int64_t b = l.size.batch;
    products_.push_back(Product(l.x, transposed(l.w_x), l.gates, true, false).on(l.x, l.gates));
    const Product step(rows(l.h, 0, b), transposed(l.w_h), rows(l.gates, 0, b), true, true);
    for (int64_t t = 0; t < l.size.steps; ++t)
      products_.push_back(step.on(rows(l.h, t * b, b), rows(l.gates, t * b, b)));
  }

  void add_backward(const Layer& l) {
    const int64_t b = l.size.batch;
    const memory dh = matrix(b, l.size.hidden);
    const memory dx = matrix(l.size.steps * b, l.x.get_desc().dims()[1]);
    const memory dw_x = matrix(l.w_x.get_desc().dims()[0], l.w_x.get_desc().dims()[1]);
    const memory dw_h = matrix(l.w_h.get_desc().dims()[0], l.w_h.get_desc().dims()[1]);
    const Product step(rows(l.gates, 0, b), l.w_h, dh, true, false);
    for (int64_t t = l.size.steps - 1; t >= 0; --t) products_.push_back(step.on(rows(l.gates, t * b, b), dh));
    const memory h = rows(l.h, 0, l.size.steps * b);
    products_.push_back(Product(l.gates, l.w_x, dx, true, false).on(l.gates, dx));
    products_.push_back(Product(transposed(l.gates), l.x, dw_x, false, false).on(transposed(l.gates), dw_x));
    products_.push_back(Product(transposed(l.gates), h, dw_h, false, false).on(transposed(l.gates), dw_h));
  }

  std::vector<Layer> kept_;  // owns what transposed() and rows() point to
  std::vector<Execution> products_;
};

}  // namespace

std::unique_ptr<Contender> make_products(const LstmData& data, Mode mode) {
  return std::make_unique<Products>(data.size, mode);
}

}  // namespace stepnet::bench
