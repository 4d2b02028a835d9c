#pragma once
// The model of fp8_reference.hpp with mixtures of experts in place of some MLPs, or latent attention in place of the other, likewise by
// plain loops from the formulas. Experts quantise the rows that come together on a rank, each expert's by their own largest value
// (Transformer Engine, pytorch/module/grouped_linear.py).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/training/fp8_reference.hpp"

namespace mgplan::tests::fp8_reference {

struct MixtureSizes {
    std::size_t experts = 0, top_k = 0;
    std::vector<bool> mixtures;  ///< layer by layer
    std::size_t ep = 1, etp = 1;
    std::vector<std::vector<std::size_t>> parts;  ///< rows that come together on a rank of each expert
};

/// Queries without a latent: q_rank 0. No part is turned.
struct LatentSizes {
    std::size_t q_rank = 0, kv_rank = 0, own = 0, shared = 0, value = 0;
    std::vector<std::vector<std::size_t>> parts;  ///< rows that the down projections cast together
};

class LayeredModel final : public Model {
public:
    /// `held`: the experts of each rank, of one where they are not divided.
    LayeredModel(Sizes sizes, std::vector<Weights> ranks, MixtureSizes mixture, std::vector<Weights> held, LatentSizes latent)
        : Model(std::move(sizes), std::move(ranks)), mixture_(std::move(mixture)), held_(std::move(held)), latent_(std::move(latent)) {
        for (const Weights& rank : held_) {
            Weights& zeros = d_held_.emplace_back(rank);
            for (auto& [name, matrix] : zeros) std::fill(matrix.values.begin(), matrix.values.end(), 0.0);
        }
    }

    /// After run(), as `held`.
    [[nodiscard]] const std::vector<Weights>& expert_gradients() const { return d_held_; }

private:
    // Mixtures.

    struct Chosen {
        std::vector<std::size_t> experts;
        std::vector<double> probabilities;
    };
    [[nodiscard]] std::vector<Chosen> choices(const Matrix& logits) const {
        std::vector<Chosen> rows(logits.rows);
        for (std::size_t i = 0; i < logits.rows; ++i) {
            std::vector<std::size_t> order(logits.columns);
            for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
            std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits.at(i, a) > logits.at(i, b); });
            double sum = 0;
            for (std::size_t k = 0; k < mixture_.top_k; ++k) {
                rows[i].experts.push_back(order[k]);
                rows[i].probabilities.push_back(std::exp(logits.at(i, order[k])));
                sum += rows[i].probabilities.back();
            }
            for (double& probability : rows[i].probabilities) probability /= sum;
        }
        return rows;
    }

    /// Rows of one expert on one rank: which, and which of their choices it is.
    struct Group {
        std::vector<std::size_t> rows, slots;
    };
    [[nodiscard]] static Group group_of(const std::vector<Chosen>& chosen, const std::vector<std::size_t>& part, std::size_t expert) {
        Group group;
        for (const std::size_t row : part) {
            for (std::size_t k = 0; k < chosen[row].experts.size(); ++k) {
                if (chosen[row].experts[k] != expert) continue;
                group.rows.push_back(row);
                group.slots.push_back(k);
            }
        }
        return group;
    }

    struct Place {
        std::size_t rank;
        std::string number;  ///< of the expert there
    };
    [[nodiscard]] Place place_of(std::size_t expert, std::size_t share) const {
        const std::size_t local = mixture_.experts / mixture_.ep;
        return {mixture_.etp > 1 ? share : expert / local, std::to_string(expert % local)};
    }

    [[nodiscard]] static Matrix weighted(Matrix rows, const std::vector<Chosen>& chosen, const Group& group) {
        for (std::size_t i = 0; i < rows.rows; ++i) {
            for (std::size_t j = 0; j < rows.columns; ++j) rows.at(i, j) *= chosen[group.rows[i]].probabilities[group.slots[i]];
        }
        return rows;
    }
    static void add_rows(Matrix& into, const Group& group, const Matrix& rows) {
        for (std::size_t i = 0; i < rows.rows; ++i) {
            for (std::size_t j = 0; j < rows.columns; ++j) into.at(group.rows[i], j) += rows.at(i, j);
        }
    }

    /// work(group, matrices of the rank that has this share of the expert, their gradients' names)
    template <class Work>
    void for_each_share(std::size_t layer, const std::vector<Chosen>& chosen, const Work& work) const {
        for (std::size_t expert = 0; expert < mixture_.experts; ++expert) {
            for (const auto& part : mixture_.parts) {
                const Group group = group_of(chosen, part, expert);
                if (group.rows.empty()) continue;
                for (std::size_t share = 0; share < mixture_.etp; ++share) {
                    const Place place = place_of(expert, share);
                    work(group, place.rank, name(layer, "mlp.experts.linear_fc1.weight" + place.number),
                         name(layer, "mlp.experts.linear_fc2.weight" + place.number));
                }
            }
        }
    }

    [[nodiscard]] bool is_mixture(std::size_t layer) const { return !mixture_.mixtures.empty() && mixture_.mixtures[layer]; }
    [[nodiscard]] std::string shared(std::size_t layer, const char* product) const {
        return name(layer, std::string("mlp.shared_experts.linear_") + product);
    }

    [[nodiscard]] Matrix mlp(std::size_t layer, const Matrix& x) const override {
        if (!is_mixture(layer)) return Model::mlp(layer, x);
        const Matrix normed = norm(x, ranks_[0].at(name(layer, "pre_mlp_layernorm.weight")), sizes_.epsilon);
        const auto chosen = choices(plain_product(normed, ranks_[0].at(name(layer, "mlp.router.weight"))));
        std::vector<Matrix> inner;
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) inner.push_back(gated(column(rank, shared(layer, "fc1"), normed)));
        Matrix y = row(shared(layer, "fc2"), inner);
        for_each_share(layer, chosen, [&](const Group& group, std::size_t rank, const std::string& first, const std::string& second) {
            const Matrix before =
                product(cast_of("rows", rows_of(normed, group.rows), kE4m3), cast_of(first, held_[rank].at(first), kE4m3));
            const Matrix after = weighted(gated(before), chosen, group);
            add_rows(y, group, product(cast_of("activation", after, kE4m3), cast_of(second, held_[rank].at(second), kE4m3)));
        });
        return y;
    }

    Matrix mlp_backward(std::size_t layer, const Matrix& x, const Matrix& dy) override {
        if (!is_mixture(layer)) return Model::mlp_backward(layer, x, dy);
        const std::string norm_name = name(layer, "pre_mlp_layernorm.weight"), router = name(layer, "mlp.router.weight");
        const Matrix normed = norm(x, ranks_[0].at(norm_name), sizes_.epsilon);
        const auto chosen = choices(plain_product(normed, ranks_[0].at(router)));
        Matrix d_normed(x.rows, x.columns);
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) {
            const Matrix both = column(rank, shared(layer, "fc1"), normed);
            const Matrix d_both = gated_backward(both, linear_backward(rank, shared(layer, "fc2"), gated(both), dy));
            add_to(d_normed, linear_backward(rank, shared(layer, "fc1"), normed, d_both));
        }
        Matrix d_probabilities(x.rows, mixture_.top_k);
        for_each_share(layer, chosen, [&](const Group& group, std::size_t rank, const std::string& first, const std::string& second) {
            const Cast input = cast_of("rows", rows_of(normed, group.rows), kE4m3), weight1 = cast_of(first, held_[rank].at(first), kE4m3),
                       weight2 = cast_of(second, held_[rank].at(second), kE4m3),
                       d_output = cast_of("gradient", rows_of(dy, group.rows), kE5m2);
            const Matrix before = product(input, weight1), activated = gated(before);
            const Cast after = cast_of("activation", weighted(activated, chosen, group), kE4m3);
            add_to(d_held_[rank].at(second), product(d_output.transposed(), after.transposed()));
            const Matrix d_after = product(d_output, weight2.transposed());
            for (std::size_t i = 0; i < d_after.rows; ++i) {
                for (std::size_t j = 0; j < d_after.columns; ++j)
                    d_probabilities.at(group.rows[i], group.slots[i]) += d_after.at(i, j) * activated.at(i, j);
            }
            const Cast d_before = cast_of("gradient", gated_backward(before, weighted(d_after, chosen, group)), kE5m2);
            add_to(d_held_[rank].at(first), product(d_before.transposed(), input.transposed()));
            add_rows(d_normed, group, product(d_before, weight1.transposed()));
        });
        Matrix d_logits(x.rows, mixture_.experts);
        for (std::size_t i = 0; i < x.rows; ++i) {
            double mean = 0;
            for (std::size_t k = 0; k < mixture_.top_k; ++k) mean += chosen[i].probabilities[k] * d_probabilities.at(i, k);
            for (std::size_t k = 0; k < mixture_.top_k; ++k)
                d_logits.at(i, chosen[i].experts[k]) = chosen[i].probabilities[k] * (d_probabilities.at(i, k) - mean);
        }
        for (Weights& rank : result_.gradients) add_to(rank.at(router), plain_product(d_logits.transposed(), normed.transposed()));
        add_to(d_normed, plain_product(d_logits, ranks_[0].at(router).transposed()));
        return through_norm(norm_name, d_normed, x);
    }

    // Latent attention.

    /// A layer that every rank has whole.
    [[nodiscard]] Matrix whole(const std::string& layer, const Matrix& x) const {
        const Cast weight = cast_of(layer + ".weight", ranks_[0].at(layer + ".weight"), kE4m3);
        Matrix y(x.rows, weight.codes.rows);
        for (const auto& part : latent_.parts) set_rows(y, part, product(cast_of(layer + ".input", rows_of(x, part), kE4m3), weight));
        return y;
    }
    Matrix whole_backward(const std::string& layer, const Matrix& x, const Matrix& dy) {
        const Cast weight = cast_of(layer + ".weight", ranks_[0].at(layer + ".weight"), kE4m3).transposed();
        Matrix dx(x.rows, x.columns);
        for (const auto& part : latent_.parts) {
            const Cast gradient = cast_of(layer + ".gradient", rows_of(dy, part), kE5m2),
                       input = cast_of(layer + ".input", rows_of(x, part), kE4m3);
            for (Weights& rank : result_.gradients) add_to(rank.at(layer + ".weight"), product(gradient.transposed(), input.transposed()));
            set_rows(dx, part, product(gradient, weight));
        }
        return dx;
    }

    [[nodiscard]] static Matrix columns_of(const Matrix& x, std::size_t begin, std::size_t end) {
        Matrix part(x.rows, end - begin);
        for (std::size_t i = 0; i < x.rows; ++i) {
            for (std::size_t j = begin; j < end; ++j) part.at(i, j - begin) = x.at(i, j);
        }
        return part;
    }

    /// What lies in front of the core.
    struct Latents {
        Matrix normed, q_latent, q_normed, both, kv_latent, kv_normed;
    };
    [[nodiscard]] std::string of(std::size_t layer, const char* projection) const {
        return name(layer, std::string("self_attention.linear_") + projection);
    }
    [[nodiscard]] Latents latents(std::size_t layer, const Matrix& x) const {
        Latents made;
        made.normed = norm(x, ranks_[0].at(name(layer, "input_layernorm.weight")), sizes_.epsilon);
        if (latent_.q_rank > 0) {
            made.q_latent = whole(of(layer, "q_down_proj"), made.normed);
            made.q_normed = norm(made.q_latent, ranks_[0].at(of(layer, "q_up_proj.layer_norm_weight")), sizes_.epsilon);
        }
        made.both = whole(of(layer, "kv_down_proj"), made.normed);
        made.kv_latent = columns_of(made.both, 0, latent_.kv_rank);
        made.kv_normed = norm(made.kv_latent, ranks_[0].at(of(layer, "kv_up_proj.layer_norm_weight")), sizes_.epsilon);
        return made;
    }

    struct Queries {
        Matrix q, kv;
    };
    [[nodiscard]] Queries queries(std::size_t layer, std::size_t rank, const Latents& made) const {
        return {latent_.q_rank > 0 ? linear(rank, of(layer, "q_up_proj"), made.q_normed) : linear(rank, of(layer, "q_proj"), made.normed),
                linear(rank, of(layer, "kv_up_proj"), made.kv_normed)};
    }
    [[nodiscard]] double key(const Queries& x, const Matrix& both, std::size_t row, std::size_t head, std::size_t d) const {
        return d < latent_.own ? x.kv.at(row, head * (latent_.own + latent_.value) + d) : both.at(row, latent_.kv_rank + d - latent_.own);
    }
    [[nodiscard]] double value(const Queries& x, std::size_t row, std::size_t head, std::size_t d) const {
        return x.kv.at(row, head * (latent_.own + latent_.value) + latent_.own + d);
    }
    [[nodiscard]] std::vector<double> softmax(const Queries& x, const Matrix& both, std::size_t row, std::size_t head) const {
        const std::size_t width = latent_.own + latent_.shared;
        std::vector<double> weights;
        double sum = 0;
        for (std::size_t j = 0; j <= row; ++j) {
            double score = 0;
            for (std::size_t d = 0; d < width; ++d) score += x.q.at(row, head * width + d) * key(x, both, j, head, d);
            weights.push_back(std::exp(score / std::sqrt(static_cast<double>(width))));
            sum += weights.back();
        }
        for (double& weight : weights) weight /= sum;
        return weights;
    }
    [[nodiscard]] Matrix attended(const Queries& x, const Matrix& both) const {
        const std::size_t heads = sizes_.heads / sizes_.tp;
        Matrix output(x.q.rows, heads * latent_.value);
        for (std::size_t head = 0; head < heads; ++head) {
            for (std::size_t i = 0; i < output.rows; ++i) {
                const auto weights = softmax(x, both, i, head);
                for (std::size_t j = 0; j <= i; ++j) {
                    for (std::size_t d = 0; d < latent_.value; ++d)
                        output.at(i, head * latent_.value + d) += weights[j] * value(x, j, head, d);
                }
            }
        }
        return output;
    }
    /// Of q and of what is projected up; adds that of the shared keys to `d_both`.
    [[nodiscard]] Queries attended_backward(const Queries& x, const Matrix& both, const Matrix& d_output, Matrix& d_both) const {
        Queries d{Matrix(x.q.rows, x.q.columns), Matrix(x.kv.rows, x.kv.columns)};
        const std::size_t width = latent_.own + latent_.shared, pair = latent_.own + latent_.value;
        for (std::size_t head = 0; head < sizes_.heads / sizes_.tp; ++head) {
            for (std::size_t i = 0; i < x.q.rows; ++i) {
                const auto weights = softmax(x, both, i, head);
                std::vector<double> slopes;
                double mean = 0;
                for (std::size_t j = 0; j <= i; ++j) {
                    double slope = 0;
                    for (std::size_t c = 0; c < latent_.value; ++c) {
                        const double dy = d_output.at(i, head * latent_.value + c);
                        slope += dy * value(x, j, head, c);
                        d.kv.at(j, head * pair + latent_.own + c) += weights[j] * dy;
                    }
                    slopes.push_back(slope);
                    mean += weights[j] * slope;
                }
                for (std::size_t j = 0; j <= i; ++j) {
                    const double d_score = weights[j] * (slopes[j] - mean) / std::sqrt(static_cast<double>(width));
                    for (std::size_t c = 0; c < width; ++c) {
                        d.q.at(i, head * width + c) += d_score * key(x, both, j, head, c);
                        double& d_key = c < latent_.own ? d.kv.at(j, head * pair + c) : d_both.at(j, latent_.kv_rank + c - latent_.own);
                        d_key += d_score * x.q.at(i, head * width + c);
                    }
                }
            }
        }
        return d;
    }

    [[nodiscard]] Matrix attention(std::size_t layer, const Matrix& x) const override {
        if (latent_.kv_rank == 0) return Model::attention(layer, x);
        const Latents made = latents(layer, x);
        std::vector<Matrix> outputs;
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) outputs.push_back(attended(queries(layer, rank, made), made.both));
        return row(of(layer, "proj"), outputs);
    }
    Matrix attention_backward(std::size_t layer, const Matrix& x, const Matrix& dy) override {
        if (latent_.kv_rank == 0) return Model::attention_backward(layer, x, dy);
        const Latents made = latents(layer, x);
        const bool has_q_latent = latent_.q_rank > 0;
        Matrix d_normed(x.rows, x.columns), d_both(x.rows, made.both.columns), d_q_normed(x.rows, latent_.q_rank),
            d_kv_normed(x.rows, latent_.kv_rank);
        for (std::size_t rank = 0; rank < sizes_.tp; ++rank) {
            const Queries given = queries(layer, rank, made);
            const Matrix d_output = linear_backward(rank, of(layer, "proj"), attended(given, made.both), dy);
            const Queries d = attended_backward(given, made.both, d_output, d_both);
            if (has_q_latent)
                add_to(d_q_normed, linear_backward(rank, of(layer, "q_up_proj"), made.q_normed, d.q));
            else
                add_to(d_normed, linear_backward(rank, of(layer, "q_proj"), made.normed, d.q));
            add_to(d_kv_normed, linear_backward(rank, of(layer, "kv_up_proj"), made.kv_normed, d.kv));
        }
        const Matrix d_latent = through_norm(of(layer, "kv_up_proj.layer_norm_weight"), d_kv_normed, made.kv_latent);
        for (std::size_t i = 0; i < x.rows; ++i) {
            for (std::size_t j = 0; j < latent_.kv_rank; ++j) d_both.at(i, j) = d_latent.at(i, j);
        }
        add_to(d_normed, whole_backward(of(layer, "kv_down_proj"), made.normed, d_both));
        if (has_q_latent) {
            const Matrix d_q_latent = through_norm(of(layer, "q_up_proj.layer_norm_weight"), d_q_normed, made.q_latent);
            add_to(d_normed, whole_backward(of(layer, "q_down_proj"), made.normed, d_q_latent));
        }
        return through_norm(name(layer, "input_layernorm.weight"), d_normed, x);
    }

    MixtureSizes mixture_;
    std::vector<Weights> held_, d_held_;
    LatentSizes latent_;
};

}  // namespace mgplan::tests::fp8_reference
