#pragma once
// A small Llama without positions whose linear layers multiply in fp8 with current scaling, forward and backward, by plain loops: written
// from the formulas alone, to hold the layers against. Linear layers are those of Transformer Engine (QKV, projection, both of the MLP),
// divided over tp as Megatron-core divides them, each rank's share cast by its own largest value, and so are the rows of each rank of
// context parallelism.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mgplan::tests::fp8_reference {

struct Matrix {
    std::size_t rows = 0, columns = 0;
    std::vector<double> values;

    Matrix() = default;
    Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
    Matrix(std::size_t r, std::size_t c, std::vector<double> v) : rows(r), columns(c), values(std::move(v)) {}
    [[nodiscard]] double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
    double& at(std::size_t row, std::size_t column) { return values[row * columns + column]; }
    [[nodiscard]] Matrix transposed() const {
        Matrix other(columns, rows);
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) other.at(j, i) = at(i, j);
        }
        return other;
    }
};

/// Which numbers a format has, from OCP's specification: (1 + f/2^m) · 2^(e - bias), or f/2^m · 2^(1 - bias) for e = 0.
struct Format {
    int mantissa = 3, bias = 7;
    double largest = 448;
};
inline constexpr Format kE4m3{}, kE5m2{2, 15, 57344};

/// The nearest number of the format; of two as near the one whose last bit of the fraction is 0.
inline double rounded(double value, const Format& format) {
    const double magnitude = std::min(std::abs(value), format.largest);
    if (magnitude == 0) return 0;
    const int exponent = std::max(static_cast<int>(std::floor(std::log2(magnitude))), 1 - format.bias);
    const double unit = std::ldexp(1.0, exponent - format.mantissa), units = magnitude / unit, below = std::floor(units);
    const double rest = units - below;
    const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
    return std::copysign(std::min((below + (up ? 1 : 0)) * unit, format.largest), value);
}

/// Codes as numbers, and the fp32 that they are multiplied with. `across`: another cast of the same values for the product that reads them
/// transposed, where that is not of these codes.
struct Cast {
    Matrix codes;
    float inverse = 1;
    Matrix across{};
    [[nodiscard]] Cast transposed() const {
        if (across.values.empty()) return {codes.transposed(), inverse};
        return {across.transposed(), inverse, codes.transposed()};
    }
};

inline float largest_of(const Matrix& x) {
    float largest = 0;
    for (const double value : x.values) largest = std::max(largest, std::abs(static_cast<float>(value)));
    return largest;
}

/// With a scale that makes `largest` the format's largest value.
inline Cast cast_by(float largest, const Matrix& x, const Format& format) {
    const float scale = largest > 0 ? static_cast<float>(format.largest) / largest : 1.0F;
    Cast result{x, 1 / scale};
    for (double& value : result.codes.values) value = rounded(static_cast<float>(value) * scale, format);
    return result;
}

inline Cast cast(const Matrix& x, const Format& format) {
    return cast_by(largest_of(x), x, format);
}

/// Delayed scaling: what each tensor's largest magnitude was in the steps before, on any rank. Transformer Engine's window is longer than
/// any test; a tensor without history has a scale of 1, a gradient of the inverse of the gradient of a row's loss.
struct Follow {
    float row_gradient = 1;
    std::map<std::string, float, std::less<>> window{}, now{};

    [[nodiscard]] Cast cast_of(const std::string& tensor, const Matrix& x, const Format& format) {
        float& most = now[tensor];
        most = std::max(most, largest_of(x));
        const auto known = window.find(tensor);
        if (known != window.end()) return cast_by(known->second, x, format);
        return cast_by(format.mantissa == 2 ? static_cast<float>(format.largest) * row_gradient : 0, x, format);
    }
    void end_step() {
        for (const auto& [tensor, most] : now) window[tensor] = std::max(window[tensor], most);
        now.clear();
    }
};

/// a · bᵀ
inline Matrix product(const Cast& a, const Cast& b) {
    Matrix result(a.codes.rows, b.codes.rows);
    for (std::size_t i = 0; i < result.rows; ++i) {
        for (std::size_t j = 0; j < result.columns; ++j) {
            double sum = 0;
            for (std::size_t k = 0; k < a.codes.columns; ++k) sum += a.codes.at(i, k) * b.codes.at(j, k);
            result.at(i, j) = sum * static_cast<double>(a.inverse) * static_cast<double>(b.inverse);
        }
    }
    return result;
}

inline Matrix plain_product(const Matrix& a, const Matrix& b) {
    Matrix result(a.rows, b.rows);
    for (std::size_t i = 0; i < a.rows; ++i) {
        for (std::size_t j = 0; j < b.rows; ++j) {
            for (std::size_t k = 0; k < a.columns; ++k) result.at(i, j) += a.at(i, k) * b.at(j, k);
        }
    }
    return result;
}

inline void add_to(Matrix& into, const Matrix& other) {
    for (std::size_t i = 0; i < into.values.size(); ++i) into.values[i] += other.values[i];
}

struct Sizes {
    std::size_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0;  ///< of the whole model
    std::size_t tp = 1;
    std::vector<std::vector<std::size_t>> parts;  ///< rows that are cast together, all of them in one part or another
    double epsilon = 1e-5;
};

/// Weights of one rank, by Megatron-core's names; matrices as (out, in), vectors as one row.
using Weights = std::map<std::string, Matrix, std::less<>>;

struct Result {
    double loss = 0;  ///< mean
    std::vector<Weights> gradients;
};

inline Matrix rows_of(const Matrix& x, const std::vector<std::size_t>& part) {
    Matrix rows(part.size(), x.columns);
    for (std::size_t i = 0; i < part.size(); ++i) {
        for (std::size_t j = 0; j < x.columns; ++j) rows.at(i, j) = x.at(part[i], j);
    }
    return rows;
}

inline void set_rows(Matrix& into, const std::vector<std::size_t>& part, const Matrix& rows) {
    for (std::size_t i = 0; i < part.size(); ++i) {
        for (std::size_t j = 0; j < rows.columns; ++j) into.at(part[i], j) = rows.at(i, j);
    }
}

inline Matrix norm(const Matrix& x, const Matrix& weight, double epsilon) {
    Matrix y = x;
    for (std::size_t i = 0; i < x.rows; ++i) {
        double squares = 0;
        for (std::size_t j = 0; j < x.columns; ++j) squares += x.at(i, j) * x.at(i, j);
        const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.columns) + epsilon);
        for (std::size_t j = 0; j < x.columns; ++j) y.at(i, j) = x.at(i, j) * inverse * weight.values[j];
    }
    return y;
}

inline Matrix norm_backward(const Matrix& dy, const Matrix& x, const Matrix& weight, double epsilon, Matrix& d_weight) {
    Matrix dx = x;
    const auto width = static_cast<double>(x.columns);
    for (std::size_t i = 0; i < x.rows; ++i) {
        double squares = 0, along = 0;
        for (std::size_t j = 0; j < x.columns; ++j) {
            squares += x.at(i, j) * x.at(i, j);
            along += dy.at(i, j) * weight.values[j] * x.at(i, j);
        }
        const double inverse = 1 / std::sqrt(squares / width + epsilon);
        for (std::size_t j = 0; j < x.columns; ++j) {
            d_weight.values[j] += dy.at(i, j) * x.at(i, j) * inverse;
            dx.at(i, j) = inverse * (dy.at(i, j) * weight.values[j] - x.at(i, j) * inverse * inverse * along / width);
        }
    }
    return dx;
}

/// One sequence: a token and what it predicts, for each place.
class Model {
public:
    virtual ~Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    Model(Sizes sizes, std::vector<Weights> ranks) : sizes_(std::move(sizes)), ranks_(std::move(ranks)) {
        for (const Weights& rank : ranks_) {
            Weights& zeros = result_.gradients.emplace_back(rank);
            for (auto& [name, matrix] : zeros) std::fill(matrix.values.begin(), matrix.values.end(), 0.0);
        }
    }

    /// Casts by the steps before, from now on.
    void follow(Follow* steps) { follow_ = steps; }

    /// Casts in another way, from now on: what is named "….weight…", and all else.
    void cast_by(std::function<Cast(bool weight, const Matrix& x)> how) { casts_ = std::move(how); }

    Result run(const std::vector<int>& tokens, const std::vector<int>& targets) {
        const std::size_t rows = tokens.size(), vocab_of_rank = ranks_[0].at(kTable).rows;
        Matrix x(rows, sizes_.hidden);
        for (std::size_t i = 0; i < rows; ++i) {
            const auto id = static_cast<std::size_t>(tokens[i]);
            for (std::size_t j = 0; j < sizes_.hidden; ++j) x.at(i, j) = ranks_[id / vocab_of_rank].at(kTable).at(id % vocab_of_rank, j);
        }
        std::vector<Matrix> halves;  // inputs of attention and MLP, in turn
        for (std::size_t layer = 0; layer < sizes_.layers; ++layer) {
            halves.push_back(x);
            add_to(x, attention(layer, x));
            halves.push_back(x);
            add_to(x, mlp(layer, x));
        }
        Matrix gradient = head(x, targets);
        for (std::size_t layer = sizes_.layers; layer-- > 0;) {
            add_to(gradient, mlp_backward(layer, halves[2 * layer + 1], gradient));
            add_to(gradient, attention_backward(layer, halves[2 * layer], gradient));
        }
        for (std::size_t i = 0; i < rows; ++i) {
            const auto id = static_cast<std::size_t>(tokens[i]);
            for (std::size_t j = 0; j < sizes_.hidden; ++j)
                result_.gradients[id / vocab_of_rank].at(kTable).at(id % vocab_of_rank, j) += gradient.at(i, j);
        }
        return result_;
    }

protected:
    static constexpr const char* kTable = "embedding.word_embeddings.weight";

    [[nodiscard]] static std::string name(std::size_t layer, const std::string& rest) {
        return "decoder.layers." + std::to_string(layer) + "." + rest;
    }

    [[nodiscard]] Cast cast_of(const std::string& tensor, const Matrix& x, const Format& format) const {
        if (casts_) return casts_(tensor.find(".weight") != std::string::npos, x);
        return follow_ != nullptr ? follow_->cast_of(tensor, x, format) : cast(x, format);
    }
    /// x · Wᵀ of a rank's share.
    [[nodiscard]] Matrix linear(std::size_t rank, const std::string& layer, const Matrix& x) const {
        const Cast weight = cast_of(layer + ".weight", ranks_[rank].at(layer + ".weight"), kE4m3);
        Matrix y(x.rows, weight.codes.rows);
        for (const auto& part : sizes_.parts) set_rows(y, part, product(cast_of(layer + ".input", rows_of(x, part), kE4m3), weight));
        return y;
    }
    /// For layers that have one.
    void add_bias(std::size_t rank, const std::string& layer, Matrix& y) const {
        const auto bias = ranks_[rank].find(layer + ".bias");
        if (bias == ranks_[rank].end()) return;
        for (std::size_t i = 0; i < y.rows; ++i) {
            for (std::size_t j = 0; j < y.columns; ++j) y.at(i, j) += bias->second.values[j];
        }
    }
    /// y of each rank = x · Wᵀ + b of a column-parallel layer.
    [[nodiscard]] Matrix column(std::size_t rank, const std::string& layer, const Matrix& x) const {
        Matrix y = linear(rank, layer, x);
        add_bias(rank, layer, y);
        return y;
    }
    /// Gradients of any linear layer of a rank: of W, and returned of x.
    Matrix linear_backward(std::size_t rank, const std::string& layer, const Matrix& x, const Matrix& dy) {
        const Cast weight = cast_of(layer + ".weight", ranks_[rank].at(layer + ".weight"), kE4m3).transposed();
        Matrix dx(x.rows, x.columns);
        for (const auto& part : sizes_.parts) {
            const Cast gradient = cast_of(layer + ".gradient", rows_of(dy, part), kE5m2),
                       input = cast_of(layer + ".input", rows_of(x, part), kE4m3);
            add_to(result_.gradients[rank].at(layer + ".weight"), product(gradient.transposed(), input.transposed()));
            set_rows(dx, part, product(gradient, weight));
        }
        return dx;
    }
    void bias_backward(std::size_t rank, const std::string& layer, const Matrix& dy) {
        const auto bias = result_.gradients[rank].find(layer + ".bias");
        if (bias == result_.gradients[rank].end()) return;
        for (std::size_t i = 0; i < dy.rows; ++i) {
            for (std::size_t j = 0; j < dy.columns; ++j) bias->second.values[j] += dy.at(i, j);
        }
    }

    struct Heads {
        std::size_t query, key, value;  ///< first columns in the packed projection
    };
    [[nodiscard]] Heads heads_at(std::size_t head) const {
        const std::size_t share = sizes_.heads / sizes_.kv_heads, d = sizes_.head_dim, group = head / share,
                          begin = group * (share + 2) * d;
        return {begin + head % share * d, begin + share * d, begin + (share + 1) * d};
    }
    /// Softmax weights of one place of a head.
    [[nodiscard]] std::vector<double> weights_of(const Matrix& packed, const Heads& at, std::size_t place) const {
        std::vector<double> weights;
        double sum = 0;
        for (std::size_t j = 0; j <= place; ++j) {
            double score = 0;
            for (std::size_t d = 0; d < sizes_.head_dim; ++d) score += packed.at(place, at.query + d) * packed.at(j, at.key + d);
            weights.push_back(std::exp(score / std::sqrt(static_cast<double>(sizes_.head_dim))));
            sum += weights.back();
        }
        for (double& weight : weights) weight /= sum;
        return weights;
    }
    [[nodiscard]] Matrix core(const Matrix& packed) const {
        const std::size_t heads = sizes_.heads / sizes_.tp;
        Matrix output(packed.rows, heads * sizes_.head_dim);
        for (std::size_t head = 0; head < heads; ++head) {
            const Heads at = heads_at(head);
            for (std::size_t i = 0; i < packed.rows; ++i) {
                const auto weights = weights_of(packed, at, i);
                for (std::size_t j = 0; j <= i; ++j) {
                    for (std::size_t d = 0; d < sizes_.head_dim; ++d)
                        output.at(i, head * sizes_.head_dim + d) += weights[j] * packed.at(j, at.value + d);
                }
            }
        }
        return output;
    }
    [[nodiscard]] Matrix core_backward(const Matrix& packed, const Matrix& d_output) const {
        Matrix gradient(packed.rows, packed.columns);
        const double scale = 1 / std::sqrt(static_cast<double>(sizes_.head_dim));
        for (std::size_t head = 0; head < sizes_.heads / sizes_.tp; ++head) {
            const Heads at = heads_at(head);
            for (std::size_t i = 0; i < packed.rows; ++i) {
                const auto weights = weights_of(packed, at, i);
                std::vector<double> slopes;
                double mean = 0;
                for (std::size_t j = 0; j <= i; ++j) {
                    double slope = 0;
                    for (std::size_t d = 0; d < sizes_.head_dim; ++d) {
                        const double dy = d_output.at(i, head * sizes_.head_dim + d);
                        slope += dy * packed.at(j, at.value + d);
                        gradient.at(j, at.value + d) += weights[j] * dy;
                    }
                    slopes.push_back(slope);
                    mean += weights[j] * slope;
                }
                for (std::size_t j = 0; j <= i; ++j) {
                    const double d_score = weights[j] * (slopes[j] - mean) * scale;
                    for (std::size_t d = 0; d < sizes_.head_dim; ++d) {
                        gradient.at(i, at.query + d) += d_score * packed.at(j, at.key + d);
                        gradient.at(j, at.key + d) += d_score * packed.at(i, at.query + d);
                    }
                }
            }
        }
        return gradient;
    }

    [[nodiscard]] const Matrix& norm_weight(std::size_t layer, bool mlp) const {
        return ranks_[0].at(name(layer, mlp ? "mlp.linear_fc1.layer_norm_weight" : "self_attention.linear_qkv.layer_norm_weight"));
    }
    Matrix through_norm(std::size_t layer, bool mlp, const Matrix& d_normed, const Matrix& x) {
        return through_norm(name(layer, mlp ? "mlp.linear_fc1.layer_norm_weight" : "self_attention.linear_qkv.layer_norm_weight"), d_normed,
                            x);
    }
    Matrix through_norm(const std::string& of, const Matrix& d_normed, const Matrix& x) {
        const Matrix& weight = ranks_[0].at(of);
        Matrix d_weight(1, weight.columns);
        Matrix dx = norm_backward(d_normed, x, weight, sizes_.epsilon, d_weight);
        for (Weights& rank : result_.gradients) add_to(rank.at(of), d_weight);
        return dx;
    }
    [[nodiscard]] Matrix row(const std::string& layer, const std::vector<Matrix>& inputs) const {
        Matrix sum;
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) {
            const Matrix part = linear(rank, layer, inputs[rank]);
            if (rank == 0)
                sum = part;
            else
                add_to(sum, part);
        }
        add_bias(0, layer, sum);
        return sum;
    }

    [[nodiscard]] virtual Matrix attention(std::size_t layer, const Matrix& x) const {
        const Matrix normed = norm(x, norm_weight(layer, false), sizes_.epsilon);
        std::vector<Matrix> outputs;
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank)
            outputs.push_back(core(column(rank, name(layer, "self_attention.linear_qkv"), normed)));
        return row(name(layer, "self_attention.linear_proj"), outputs);
    }
    virtual Matrix attention_backward(std::size_t layer, const Matrix& x, const Matrix& dy) {
        const Matrix normed = norm(x, norm_weight(layer, false), sizes_.epsilon);
        const std::string qkv = name(layer, "self_attention.linear_qkv"), projection = name(layer, "self_attention.linear_proj");
        Matrix d_normed(x.rows, x.columns);
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) {
            const Matrix packed = column(rank, qkv, normed);
            bias_backward(rank, projection, dy);
            const Matrix d_packed = core_backward(packed, linear_backward(rank, projection, core(packed), dy));
            bias_backward(rank, qkv, d_packed);
            add_to(d_normed, linear_backward(rank, qkv, normed, d_packed));
        }
        return through_norm(layer, false, d_normed, x);
    }

    [[nodiscard]] static Matrix gated(const Matrix& both) {
        Matrix y(both.rows, both.columns / 2);
        for (std::size_t i = 0; i < y.rows; ++i) {
            for (std::size_t j = 0; j < y.columns; ++j) {
                const double gate = both.at(i, j);
                y.at(i, j) = gate / (1 + std::exp(-gate)) * both.at(i, y.columns + j);
            }
        }
        return y;
    }
    [[nodiscard]] static Matrix gated_backward(const Matrix& both, const Matrix& dy) {
        Matrix gradient(both.rows, both.columns);
        for (std::size_t i = 0; i < dy.rows; ++i) {
            for (std::size_t j = 0; j < dy.columns; ++j) {
                const double gate = both.at(i, j), share = 1 / (1 + std::exp(-gate)), silu = gate * share;
                gradient.at(i, j) = dy.at(i, j) * both.at(i, dy.columns + j) * (share + silu * (1 - share));
                gradient.at(i, dy.columns + j) = dy.at(i, j) * silu;
            }
        }
        return gradient;
    }
    [[nodiscard]] virtual Matrix mlp(std::size_t layer, const Matrix& x) const {
        const Matrix normed = norm(x, norm_weight(layer, true), sizes_.epsilon);
        std::vector<Matrix> inner;
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) inner.push_back(gated(column(rank, name(layer, "mlp.linear_fc1"), normed)));
        return row(name(layer, "mlp.linear_fc2"), inner);
    }
    virtual Matrix mlp_backward(std::size_t layer, const Matrix& x, const Matrix& dy) {
        const Matrix normed = norm(x, norm_weight(layer, true), sizes_.epsilon);
        const std::string first = name(layer, "mlp.linear_fc1"), second = name(layer, "mlp.linear_fc2");
        Matrix d_normed(x.rows, x.columns);
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) {
            const Matrix both = column(rank, first, normed);
            bias_backward(rank, second, dy);
            const Matrix d_both = gated_backward(both, linear_backward(rank, second, gated(both), dy));
            bias_backward(rank, first, d_both);
            add_to(d_normed, linear_backward(rank, first, normed, d_both));
        }
        return through_norm(layer, true, d_normed, x);
    }

    /// Norm, output layer and loss, none of them in fp8; returns the gradient of x.
    Matrix head(const Matrix& x, const std::vector<int>& targets) {
        const Matrix& weight = ranks_[0].at("decoder.final_layernorm.weight");
        const Matrix normed = norm(x, weight, sizes_.epsilon);
        std::vector<Matrix> logits;
        for (const Weights& rank : ranks_) logits.push_back(plain_product(normed, rank.at("output_layer.weight")));
        const auto rows = static_cast<double>(x.rows);
        for (std::size_t i = 0; i < x.rows; ++i) {
            double sum = 0;
            for (const Matrix& part : logits) {
                for (std::size_t j = 0; j < part.columns; ++j) sum += std::exp(part.at(i, j));
            }
            const auto target = static_cast<std::size_t>(targets[i]);
            const std::size_t width = logits[0].columns;
            result_.loss += (std::log(sum) - logits[target / width].at(i, target % width)) / rows;
            for (Matrix& part : logits) {
                for (std::size_t j = 0; j < part.columns; ++j) part.at(i, j) = std::exp(part.at(i, j)) / sum / rows;
            }
            logits[target / width].at(i, target % width) -= 1 / rows;
        }
        Matrix d_normed(x.rows, x.columns);
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            const Matrix& part = logits[rank];
            add_to(result_.gradients[rank].at("output_layer.weight"), plain_product(part.transposed(), normed.transposed()));
            add_to(d_normed, plain_product(part, ranks_[rank].at("output_layer.weight").transposed()));
        }
        Matrix d_weight(1, sizes_.hidden);
        Matrix dx = norm_backward(d_normed, x, weight, sizes_.epsilon, d_weight);
        for (Weights& rank : result_.gradients) add_to(rank.at("decoder.final_layernorm.weight"), d_weight);
        return dx;
    }

    Follow* follow_ = nullptr;
    std::function<Cast(bool, const Matrix&)> casts_;
    Sizes sizes_;
    std::vector<Weights> ranks_;
    Result result_;
};

}  // namespace mgplan::tests::fp8_reference
