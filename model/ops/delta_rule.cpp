#include "model/ops/delta_rule.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"
#include "model/ops/kernel_table.hpp"
#include "model/ops/scratch.hpp"

namespace mgplan::model {
namespace {

constexpr Arithmetic kDeltaByChunks{.small_products = true};

const Tensor& raw_decays(const DeltaRuleInputs& in) {
    return in.decays.defined() ? in.decays : in.projected;
}

void expect_rule(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    expect_float(in.mixed, "inputs of delta_rule");
    MGPLAN_ASSERT(sizes.places > 0 && sizes.batch > 0 && sizes.key_heads > 0 && sizes.value_heads % sizes.key_heads == 0 &&
                      sizes.value_heads > 0 && sizes.key_dim > 0 && sizes.value_dim > 0 && sizes.chunk > 0,
                  "key heads of delta_rule serve equally many value heads");
    expect_shape(in.mixed, {sizes.rows(), sizes.width()}, "inputs of delta_rule");
    expect_dtype(in.projected, in.mixed.dtype(), "gates of delta_rule");
    MGPLAN_ASSERT(in.projected.shape().rank() == 2 && in.projected.shape()[0] == sizes.rows() && in.beta_begin >= 0 &&
                      in.beta_begin + sizes.value_heads <= in.projected.shape()[1],
                  "the strengths of delta_rule are columns of its projection");
    const Tensor& decays = raw_decays(in);
    expect_dtype(decays, in.mixed.dtype(), "decays of delta_rule");
    MGPLAN_ASSERT(decays.shape().rank() == 2 && decays.shape()[0] == sizes.rows() && in.decay_begin >= 0 &&
                      in.decay_begin + sizes.decays() <= decays.shape()[1],
                  "the decays of delta_rule are columns of its projection");
    expect_shape(in.step_bias, {sizes.decays()}, "a bias for each decay of delta_rule");
    expect_shape(in.log_decay, {sizes.value_heads}, "a value for each head of delta_rule");
    for (const Tensor* tensor : {&in.step_bias, &in.log_decay})
        expect_dtype(*tensor, in.mixed.dtype(), "a value for each head of delta_rule");
    expect_same_device(in.mixed, in.projected, decays, in.step_bias, in.log_decay);
}

std::int64_t bytes_of_gates(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    return in.projected.bytes() / in.projected.shape()[1] * (sizes.value_heads + sizes.decays());
}

bool by_chunks(const Device& device) {
    return device.traits().kind != DeviceKind::cpu;
}

/// Values of all states that a pass over the rows meets.
double state_values(const DeltaRuleSizes& sizes) {
    return static_cast<double>(sizes.rows()) * static_cast<double>(sizes.values()) * static_cast<double>(sizes.key_dim);
}

/// Hands out scratch in the statistics' type; undefined where it has no values.
class Scratch {
public:
    Scratch(Device& device, Dtype dtype) : device_(device), kept_(statistics_dtype(dtype)) {}
    [[nodiscard]] Tensor take(const Shape& shape, std::string_view name) const {
        return device_.empty(shape, kept_, MemoryCategory::workspace, name);
    }
    [[nodiscard]] Tensor take(std::int64_t values, std::string_view name) const {
        return values > 0 ? take(Shape{values}, name) : Tensor{};
    }
    [[nodiscard]] std::int64_t bytes(std::int64_t values) const { return values * bytes_of(kept_); }

private:
    Device& device_;
    Dtype kept_;
};

constexpr std::string_view kKeptByChannel = "kept shares of delta rule states";

/// Scratch of the CPU's backward (DeltaRuleWalk), but its sums.
struct RuleScratch {
    Tensor keeps, chunk_states, place_states, state_gradients, vectors;
};

RuleScratch scratch_of_walk(const Scratch& scratch, const DeltaRuleWalk& walk) {
    return {scratch.take(walk.kept, kKeptByChannel), scratch.take(walk.chunk_states, "delta rule states by chunk"),
            scratch.take(walk.place_states, "delta rule states by place"), scratch.take(walk.state_gradients, "delta rule state gradients"),
            scratch.take(walk.vectors, "delta rule vectors")};
}

Tensor take_workspace(Device& device, Dtype dtype, const DeltaRuleSizes& sizes, bool backward) {
    if (!by_chunks(device)) return {};
    return take_scratch(device, rule_workspace(device.traits(), dtype, sizes, backward).total, kRuleWorkspace);
}

/// Kernels on a device: the CPU's loops, or each block's operands, products and what is between them, and a walk over its chunks.
std::int64_t rule_launches(const Device& device, Dtype dtype, const DeltaRuleSizes& sizes, bool backward) {
    if (!by_chunks(device)) return (sizes.channel_decays ? 3 : 2) + (backward ? 1 + 2 * column_sum_launches(sizes.batch) : 0);
    constexpr std::int64_t kOfAChunk = 3, kOutputs = 3;
    const RuleWorkspace space = rule_workspace(device.traits(), dtype, sizes, backward);
    const std::int64_t chunks = space.chunks(), made_again = chunks - space.last_chunks();
    const std::int64_t prepared = 5 + 2 * space.parts_of_inverses();
    if (!backward) return 1 + (prepared + kOutputs) * space.blocks + kOfAChunk * chunks;
    const std::int64_t gradients = (sizes.channel_decays ? 9 : 10) + space.parts_of_inverses();
    return 2 + prepared * (2 * space.blocks - 1) + kOfAChunk * (2 * chunks + made_again) + gradients * space.blocks +
           2 * column_sum_launches(chunks * sizes.batch);
}

/// Counts a GPU's work (runtime/cuda/ops/delta_rule.hpp), chunk by chunk. Bytes are those of whole arrays, each once for a kernel that
/// reads it and once for one that writes it; parameters, their sums and zeros aside. Instructions are those of the bodies' loops, including
/// address computations; of the triangular matrices, which are made row by row, each row waits for the one before.
class OwnRule {
public:
    OwnRule(const Device& device, Dtype dtype, const DeltaRuleSizes& sizes, bool backward)
        : sizes_(sizes),
          space_(rule_workspace(device.traits(), dtype, sizes, backward)),
          narrow_(static_cast<double>(bytes_of(dtype))),
          wide_(static_cast<double>(bytes_of(statistics_dtype(dtype)))) {}

    [[nodiscard]] OwnKernels forward() {
        add({space_.whole, space_.length}, &OwnRule::add_forward);
        add({space_.rest > 0 ? 1 : 0, space_.rest}, &OwnRule::add_forward);
        own_.of_a_thread = of_a_thread() * static_cast<double>(space_.blocks);
        return own_;
    }
    [[nodiscard]] OwnKernels backward() {
        add({space_.chunks() - space_.last_chunks(), space_.length}, &OwnRule::add_states);
        add({space_.whole, space_.length}, &OwnRule::add_backward);
        add({space_.rest > 0 ? 1 : 0, space_.rest}, &OwnRule::add_backward);
        own_.of_a_thread = of_a_thread() * static_cast<double>(2 * space_.blocks - 1);
        return own_;
    }

private:
    struct Chunks {
        std::int64_t count, length;
    };
    /// Elements of the arrays of chunks of all sequences and heads, as RuleWorkspace has them; `key_`: of key heads.
    struct Elements {
        double teams, places, maps, lines, pairs, states, decays, ends, key_places, key_maps, scores;
        Elements(const DeltaRuleSizes& s, const Chunks& chunks) {
            const auto real = [](std::int64_t count) { return static_cast<double>(count); };
            const std::int64_t matrices = chunks.count * s.batch;
            teams = real(matrices * s.value_heads);
            places = teams * real(chunks.length);
            maps = places * real(s.key_dim);
            lines = places * real(s.value_dim);
            pairs = places * real(chunks.length);
            states = teams * real(s.key_dim * s.value_dim);
            decays = places * real(s.decays_of_head());
            ends = teams * real(s.decays_of_head());
            key_places = real(matrices * s.key_heads * chunks.length);
            key_maps = key_places * real(s.key_dim);
            scores = s.channel_decays ? 2 * pairs : 2 * key_places * real(chunks.length);
        }
    };

    void add(const Chunks& chunks, void (OwnRule::*what)(const Elements&)) { (this->*what)(Elements(sizes_, chunks)); }
    [[nodiscard]] double keys() const { return static_cast<double>(sizes_.key_dim); }
    [[nodiscard]] double values() const { return static_cast<double>(sizes_.value_dim); }
    /// Instructions of the rows of a triangular matrix one after another, each a sum over those before it.
    [[nodiscard]] double of_a_thread() const {
        const auto places = static_cast<double>(space_.length);
        return 8 * places * places / 2 + 60 * places;
    }
    /// Adds the bytes of `narrow` elements of the storage type and `wide` ones of the statistics'.
    void move(double narrow, double wide) { own_.bytes += narrow * narrow_ + wide * wide_; }

    /// Products of the inverses with matrices of rows of `width` values: one for each of their parts, the second of which adds to the
    /// first.
    void multiply_inverses(const Elements& e, double width) {
        const double parts = space_.parts_of_inverses(), elements = e.places * width;
        own_.product_flops += parts * 2 * e.pairs * width;
        move(parts * (e.pairs + 2 * elements) + (parts - 1) * elements, 0);
    }

    /// The begin of every pass: factors, inverses, new values, states.
    void add_states(const Elements& e) {
        const bool channels = sizes_.channel_decays;
        const double parts = space_.parts_of_inverses();
        if (!channels) own_.product_flops += 2 * e.scores * keys();
        own_.product_flops += 2 * 2 * e.maps * values();
        own_.exponentials += 2 * e.decays + 2 * e.maps + e.pairs * (channels ? keys() : 1) + e.states;
        own_.instructions += 40 * e.decays + 60 * e.maps + 30 * e.lines + 60 * e.pairs + 20 * e.states;
        own_.instructions += 8 * (parts - 1) * e.pairs;
        own_.instructions += 8 * e.pairs * static_cast<double>(space_.length) / 3 + (channels ? 24 * e.pairs * keys() : 0);
        move(e.places + e.decays, e.places + 2 * e.decays);                                  // strengths and decays
        move(2 * e.key_maps + 5 * e.maps, 2 * e.key_places + e.places + e.decays);           // factors of keys and queries
        move(2 * e.lines, e.places);                                                         // and values
        move(channels ? 2 * e.maps : 3 * e.key_maps, e.scores + (channels ? e.decays : 0));  // scores
        move((1 + parts) * e.pairs, 2 * e.pairs + e.places + (channels ? 0 : e.decays));     // inverses and weights
        multiply_inverses(e, keys());              // keys, whose reads are subtracted from new values
        multiply_inverses(e, values());            // and values
        move(e.states, 2 * e.states + e.ends);     // states that a chunk leaves
        move(e.maps + e.states + 2 * e.lines, 0);  // new values
        move(e.maps + e.lines, 2 * e.states);      // states
    }

    void add_forward(const Elements& e) {
        add_states(e);
        own_.product_flops += 2 * (e.maps + e.pairs) * values();
        own_.instructions += 30 * e.lines;
        move(e.maps + e.states, e.lines);      // read from states
        move(e.pairs + e.lines, 2 * e.lines);  // and from new values
        move(e.lines, e.lines);                // to their rows
    }

    void add_backward(const Elements& e) {
        add_states(e);
        const bool channels = sizes_.channel_decays;
        // Gradients of new values, states and values by strengths; then along new values, states and their gradients, and keys and queries.
        own_.product_flops += 2 * (e.pairs + 3 * e.maps) * values() + 2 * (2 * e.pairs + 3 * e.maps) * values();
        if (!channels) own_.product_flops += 2 * 4 * e.pairs * keys();
        own_.exponentials += e.states + e.pairs + 10 * e.maps + e.decays + (channels ? e.pairs * keys() : 0);
        own_.instructions += 24 * e.states + 40 * e.pairs + 400 * e.maps + 40 * e.lines + 80 * e.decays;
        if (channels) own_.instructions += 36 * e.pairs * keys();
        move(2 * e.lines, 0);                                                       // gradients of outputs
        move(e.pairs + 2 * e.lines, 0);                                             // of new values through outputs
        move(e.states, 2 * e.states + e.ends);                                      // those of states that a chunk leaves
        move(e.maps + e.states + 2 * e.lines, 0);                                   // of new values
        move(2 * e.maps + 2 * e.lines, 2 * e.states);                               // of states
        multiply_inverses(e, values());                                             // of values by strengths
        move(3 * e.lines, 2 * e.pairs);                                             // along new values
        move(2 * e.pairs, 3 * e.pairs + 2 * e.places + (channels ? 0 : e.decays));  // of scores
        move(2 * e.lines + e.states, 2 * e.maps);                                   // along states
        move(e.lines + e.states, e.maps);                                           // along their gradients
        if (channels)
            move(2 * e.pairs + 2 * e.maps, e.decays + 3 * e.maps);  // along keys and queries
        else
            move(4 * e.pairs + 3 * e.maps, 3 * e.maps);
        move(3 * e.lines + 2 * e.maps + e.places, 6 * e.maps + 2 * e.places + 3 * e.decays);         // of values and strengths
        move(4 * e.key_maps, 6 * e.maps + 4 * e.key_maps + e.places + e.decays + 2 * e.key_places);  // of keys and queries
        move(2 * e.states + 2 * e.decays, e.ends + 2 * e.decays);                                    // of decays
    }

    DeltaRuleSizes sizes_;
    RuleWorkspace space_;
    double narrow_, wide_;
    OwnKernels own_{};
};

OwnKernels own_rule_kernels(const Device& device, Dtype dtype, const DeltaRuleSizes& sizes, bool backward) {
    if (!by_chunks(device)) return {};
    OwnRule rule(device, dtype, sizes, backward);
    return backward ? rule.backward() : rule.forward();
}

}  // namespace

Tensor delta_rule(const DeltaRuleInputs& in, const DeltaRuleSizes& sizes) {
    expect_rule(in, sizes);
    Device& device = in.mixed.device();
    const Dtype dtype = in.mixed.dtype();
    Tensor y = device.empty({sizes.rows(), sizes.values()}, dtype, MemoryCategory::activations, "delta rule output");
    const Scratch scratch(device, dtype);
    const DeltaRuleWalk walk(sizes);
    const Tensor norms = scratch.take({sizes.rows(), 2, sizes.key_heads}, "inverse lengths of queries and keys");
    const Tensor keeps = by_chunks(device) ? Tensor{} : scratch.take(walk.kept, kKeptByChannel);
    const Tensor workspace = take_workspace(device, dtype, sizes, false);
    const Tensor states = scratch.take({sizes.batch, sizes.value_heads, sizes.key_dim, sizes.value_dim}, "delta rule states");
    // Counted place by place: for each value of a state one operation for its decay, two each for what the key finds, for writing and for
    // reading.
    device.report({"delta_rule",
                   7 * state_values(sizes),
                   total_bytes(in.mixed, in.step_bias, in.log_decay) + bytes_of_gates(in, sizes),
                   total_bytes(y, norms, states) + scratch.bytes(walk.kept),
                   rule_launches(device, dtype, sizes, false),
                   {},
                   {},
                   {},
                   kDeltaByChunks,
                   own_rule_kernels(device, dtype, sizes, false)});
    if (!device.computes()) return y;
    device.kernels().delta_rule(device, {in.mixed, in.projected, raw_decays(in), in.step_bias, in.log_decay, y, norms, keeps, states, sizes,
                                         in.projected.shape()[1], in.beta_begin, raw_decays(in).shape()[1], in.decay_begin, workspace});
    return y;
}

Tensor delta_rule_backward(const Tensor& dy, const DeltaRuleInputs& in, const DeltaRuleSizes& sizes, const Tensor& d_projected,
                           const Tensor& step_bias_gradient, const Tensor& log_decay_gradient, const Tensor& d_decays) {
    expect_rule(in, sizes);
    expect_shape(dy, {sizes.rows(), sizes.values()}, "dy of delta_rule");
    expect_dtype(dy, in.mixed.dtype(), "dy of delta_rule");
    expect_shape(d_projected, in.projected.shape(), "gradient of the projection of delta_rule");
    expect_dtype(d_projected, in.mixed.dtype(), "gradient of the projection of delta_rule");
    const Tensor& of_decays = in.decays.defined() ? d_decays : d_projected;
    expect_shape(of_decays, raw_decays(in).shape(), "gradient of the decays of delta_rule");
    expect_dtype(of_decays, in.mixed.dtype(), "gradient of the decays of delta_rule");
    expect_shape(step_bias_gradient, {sizes.decays()}, "gradient of a bias for each decay of delta_rule");
    expect_shape(log_decay_gradient, {sizes.value_heads}, "gradient of a value for each head of delta_rule");
    for (const Tensor* tensor : {&step_bias_gradient, &log_decay_gradient})
        expect_accumulator(*tensor, in.mixed, "gradient of a value for each head of delta_rule");
    expect_same_device(in.mixed, dy, d_projected, of_decays);
    Device& device = in.mixed.device();
    const Dtype dtype = in.mixed.dtype();
    Tensor dx = device.empty(in.mixed.shape(), dtype, MemoryCategory::activations, "delta rule input gradient");
    const Scratch scratch(device, dtype);
    const DeltaRuleWalk walk(sizes);
    const Tensor norms = scratch.take({sizes.rows(), 2, sizes.key_heads}, "inverse lengths of queries and keys");
    const RuleScratch walked = by_chunks(device) ? RuleScratch{} : scratch_of_walk(scratch, walk);
    const Tensor workspace = take_workspace(device, dtype, sizes, true);
    const Tensor unit_gradients = scratch.take({sizes.rows(), 2, sizes.key_heads, sizes.key_dim}, "gradients of unit queries and keys");
    const Tensor sums = by_chunks(device) ? Tensor{} : scratch.take(walk.sums, "delta rule parameter sums");
    // The states twice again (5 each), then seven products with them of two operations and one decay.
    const std::int64_t chunk_states = scratch.bytes(walk.chunk_states);
    const std::int64_t reads = total_bytes(dy, in.mixed, in.step_bias, in.log_decay) + bytes_of_gates(in, sizes) + chunk_states;
    const std::int64_t writes =
        dx.bytes() + bytes_of_gates(in, sizes) + total_bytes(norms, unit_gradients) + scratch.bytes(walk.kept) + chunk_states;
    device.report({"delta_rule_backward",
                   25 * state_values(sizes),
                   reads,
                   writes,
                   rule_launches(device, dtype, sizes, true),
                   {},
                   {},
                   {},
                   kDeltaByChunks,
                   own_rule_kernels(device, dtype, sizes, true)});
    if (!device.computes()) return dx;
    device.kernels().delta_rule_backward(device, {dy,
                                                  in.mixed,
                                                  in.projected,
                                                  raw_decays(in),
                                                  in.step_bias,
                                                  in.log_decay,
                                                  dx,
                                                  d_projected,
                                                  of_decays,
                                                  step_bias_gradient,
                                                  log_decay_gradient,
                                                  norms,
                                                  walked.keeps,
                                                  walked.chunk_states,
                                                  walked.place_states,
                                                  walked.state_gradients,
                                                  walked.vectors,
                                                  unit_gradients,
                                                  sums,
                                                  sizes,
                                                  in.projected.shape()[1],
                                                  in.beta_begin,
                                                  raw_decays(in).shape()[1],
                                                  in.decay_begin,
                                                  workspace});
    return dx;
}

}  // namespace mgplan::model
