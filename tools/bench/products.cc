// The floor: the matrix products of a cell and nothing else, by oneDNN's matmul.
//
// Per layer: one product for all steps' inputs and for each step one per matrix that a state goes into; in training for
// each step as many for the states' gradients, and one each for the gradients of the inputs and of all weights. Weights
// are in the primitives' own layout before anything is timed.
#include "tools/bench/cell_case.h"
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
  Products(const CellData& data, Mode mode) : Contender(kProducts), size_(data.size) {
    for (int k = 0; k < size_.layers; ++k) {
      const Layer layer = make_layer(*data.cell, size_.layer_inputs(k));
      add_forward(layer);
      if (mode == Mode::training) add_backward(layer);
      kept_.push_back(layer);
    }
    cpu_stream().wait();
  }

  void run() override {
    for (const Execution& product : products_) product.run();
    cpu_stream().wait();
  }

 private:
  // A weight and what comes out of its products, [T B, rows].
  struct Weighted {
    memory weight, gates;
  };
  struct Layer {
    memory x, h;
    Weighted input;
    std::vector<Weighted> recurrent;
  };

  Layer make_layer(const Cell& cell, int64_t inputs) const {
    const int64_t all = size_.steps * size_.batch, hidden = size_.hidden;
    const int64_t gates = cell.rows(Fan::inputs) * hidden;
    Layer layer{
        matrix(all, inputs), matrix(all + size_.batch, hidden), {matrix(gates, inputs), matrix(all, gates)}, {}};
    for (const ParameterInfo& p : cell.parameters)
      if (p.fan == Fan::hidden)
        layer.recurrent.push_back({matrix(p.rows * hidden, hidden), matrix(all, p.rows * hidden)});
    return layer;
  }

  memory step_rows(const memory& m, int64_t step) const { return rows(m, step * size_.batch, size_.batch); }

  void add_forward(const Layer& l) {
    const memory w_x = transposed(l.input.weight);
    products_.push_back(Product(l.x, w_x, l.input.gates, true, false).on(l.x, l.input.gates));
    std::vector<Product> steps;
    for (const Weighted& r : l.recurrent)
      steps.emplace_back(step_rows(l.h, 0), transposed(r.weight), step_rows(r.gates, 0), true, true);
    for (int64_t t = 0; t < size_.steps; ++t)
      for (size_t i = 0; i < steps.size(); ++i)
        products_.push_back(steps[i].on(step_rows(l.h, t), step_rows(l.recurrent[i].gates, t)));
  }

  void add_backward(const Layer& l) {
    const memory dh = matrix(size_.batch, size_.hidden);
    std::vector<Product> steps;
    for (const Weighted& r : l.recurrent) steps.emplace_back(step_rows(r.gates, 0), r.weight, dh, true, false);
    for (int64_t t = size_.steps - 1; t >= 0; --t)
      for (size_t i = 0; i < steps.size(); ++i)
        products_.push_back(steps[i].on(step_rows(l.recurrent[i].gates, t), dh));
    const memory dx = matrix(size_.steps * size_.batch, l.x.get_desc().dims()[1]);
    products_.push_back(Product(l.input.gates, l.input.weight, dx, true, false).on(l.input.gates, dx));
    add_weight_gradient(l.input, l.x);
    for (const Weighted& r : l.recurrent) add_weight_gradient(r, rows(l.h, 0, size_.steps * size_.batch));
  }

  void add_weight_gradient(const Weighted& w, const memory& in) {
    const memory::dims dims = w.weight.get_desc().dims();
    const memory gradient = matrix(dims[0], dims[1]);
    products_.push_back(Product(transposed(w.gates), in, gradient, false, false).on(transposed(w.gates), gradient));
  }

  Size size_;
  std::vector<Layer> kept_;  // owns what transposed() and rows() point to
  std::vector<Execution> products_;
};

}  // namespace

std::unique_ptr<Contender> make_products(const CellData& data, Mode mode) {
  return std::make_unique<Products>(data, mode);
}

}  // namespace stepnet::bench
