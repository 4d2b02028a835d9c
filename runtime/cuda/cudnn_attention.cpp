#include "runtime/cuda/cudnn_attention.hpp"

#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cudnn_graph.hpp"
#include "runtime/cuda/cudnn_library.hpp"
#include "runtime/cuda/fused_strides.hpp"
#include "runtime/cuda/shared_values.hpp"

namespace mgplan::runtime::cuda {
namespace {

Dimensions transposed(Dimensions values) {
    std::swap(values[2], values[3]);
    return values;
}

struct Plan {
    explicit Plan(cudnnHandle_t handle) : graph(handle) {}
    CudnnGraph graph;
    std::vector<std::int64_t> ids;  ///< of the stored tensors and scalars, in the order in which run() lists their memory
    bool works = false;
    std::string refusal;                         ///< without the rank that met it: the card's other ranks read it too
    float factor = 0, one = 1, hidden = -1e30F;  ///< the scalars, at the same addresses in each run
};

/// The causal mask and the value of what it hides; nothing where every query sees every key.
class Mask {
public:
    Mask(CudnnGraph& graph, bool causal) : graph_(graph) {
        if (causal) hidden_ = graph.scalar();
    }
    [[nodiscard]] GraphTensor over(const GraphTensor& scores) const { return hidden_ ? graph_.causal(scores, *hidden_) : scores; }
    void name(std::vector<std::int64_t>& ids) const {
        if (hidden_) ids.push_back(hidden_->id);
    }

private:
    CudnnGraph& graph_;
    std::optional<GraphTensor> hidden_;
};

/// Describes the graph that cuDNN's engines run as flash attention (cuDNN developer guide, "Fused attention fprop").
void describe_forward(Plan& plan, const FusedShape& shape) {
    const FusedShape s = by_group(shape);
    CudnnGraph& g = plan.graph;
    const Dimensions scores{s.batch, s.heads, s.places, s.key_places}, rows{s.batch, s.heads, s.places, 1};
    const GraphTensor q = g.stored({s.batch, s.heads, s.places, s.qk_dim}, input_strides(s, s.heads, s.qk_dim), CUDNN_DATA_BFLOAT16);
    const GraphTensor k = g.stored(transposed({s.batch, s.kv_heads, s.key_places, s.qk_dim}),
                                   transposed(input_strides(s, s.kv_heads, s.qk_dim)), CUDNN_DATA_BFLOAT16);
    const GraphTensor v =
        g.stored({s.batch, s.kv_heads, s.key_places, s.v_dim}, input_strides(s, s.kv_heads, s.v_dim), CUDNN_DATA_BFLOAT16);
    const GraphTensor scale = g.scalar();
    const GraphTensor output = g.stored({s.batch, s.heads, s.places, s.v_dim}, strides_of(s, s.heads, s.v_dim), CUDNN_DATA_BFLOAT16);
    const GraphTensor log_sum_exp = g.stored(rows, dense(rows), CUDNN_DATA_FLOAT);

    const GraphTensor product = g.inner(scores), scaled = g.inner(scores);
    g.matmul(q, k, product);
    g.pointwise(CUDNN_POINTWISE_MUL, product, scale, scaled);
    const Mask mask(g, s.causal);
    const GraphTensor masked = mask.over(scaled);
    const GraphTensor maximum = g.inner(rows), below = g.inner(scores), exponentials = g.inner(scores), sum = g.inner(rows),
                      logarithm = g.inner(rows), weights = g.inner(scores, CUDNN_DATA_BFLOAT16);
    g.reduce(CUDNN_REDUCE_TENSOR_MAX, masked, maximum);
    g.pointwise(CUDNN_POINTWISE_SUB, masked, maximum, below);
    g.pointwise(CUDNN_POINTWISE_EXP, below, exponentials);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials, sum);
    g.pointwise(CUDNN_POINTWISE_LOG, sum, logarithm);
    g.pointwise(CUDNN_POINTWISE_ADD, maximum, logarithm, log_sum_exp);
    g.pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, weights);
    g.matmul(weights, v, output);
    plan.ids = {q.id, k.id, v.id, output.id, log_sum_exp.id, scale.id};
    mask.name(plan.ids);
}

/// "Fused attention bprop" of the same guide, with the query gradient added up in fp32.
void describe_backward(Plan& plan, const FusedShape& shape) {
    const FusedShape s = by_group(shape);
    CudnnGraph& g = plan.graph;
    const auto half = CUDNN_DATA_BFLOAT16;
    const Dimensions scores{s.batch, s.heads, s.places, s.key_places}, rows{s.batch, s.heads, s.places, 1};
    const Dimensions queries{s.batch, s.heads, s.places, s.qk_dim}, outputs{s.batch, s.heads, s.places, s.v_dim};
    const Dimensions keys{s.batch, s.kv_heads, s.key_places, s.qk_dim}, values{s.batch, s.kv_heads, s.key_places, s.v_dim};
    const Dimensions key_strides = input_strides(s, s.kv_heads, s.qk_dim), value_strides = input_strides(s, s.kv_heads, s.v_dim);
    const GraphTensor q = g.stored(queries, input_strides(s, s.heads, s.qk_dim), half);
    const GraphTensor k = g.stored(transposed(keys), transposed(key_strides), half);
    const GraphTensor v = g.stored(transposed(values), transposed(value_strides), half);
    const GraphTensor output = g.stored(outputs, strides_of(s, s.heads, s.v_dim), half);
    const GraphTensor d_output = g.stored(outputs, strides_of(s, s.heads, s.v_dim), half);
    const GraphTensor log_sum_exp = g.stored(rows, dense(rows), CUDNN_DATA_FLOAT);
    const GraphTensor scale = g.scalar(), one = g.scalar();
    const Mask mask(g, s.causal);
    const GraphTensor dq = g.stored(queries, input_strides(s, s.heads, s.qk_dim), half);
    const GraphTensor dk = g.stored(keys, key_strides, half);
    const GraphTensor dv = g.stored(values, value_strides, half);
    const GraphTensor delta = g.stored(rows, dense(rows), CUDNN_DATA_FLOAT);
    const GraphTensor query_sums = g.stored(queries, dense(queries), CUDNN_DATA_FLOAT);

    const GraphTensor products = g.inner(outputs), sums = g.inner(rows);
    g.pointwise(CUDNN_POINTWISE_MUL, d_output, output, products);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
    g.pointwise(CUDNN_POINTWISE_MUL, sums, one, delta);

    const GraphTensor product = g.inner(scores), scaled = g.inner(scores), below = g.inner(scores), weights = g.inner(scores);
    g.matmul(q, k, product);
    g.pointwise(CUDNN_POINTWISE_MUL, product, scale, scaled);
    g.pointwise(CUDNN_POINTWISE_SUB, scaled, log_sum_exp, below);
    g.pointwise(CUDNN_POINTWISE_EXP, mask.over(below), weights);

    // Gradients of grouped keys and values are made for every query head and then added up.
    const Dimensions flipped{s.batch, s.heads, s.key_places, s.places}, flipped_strides = transposed(dense(scores));
    const auto collect = [&](const GraphTensor& left, const GraphTensor& right, const GraphTensor& into, std::int64_t width) {
        if (s.heads == s.kv_heads) return g.matmul(left, right, into);
        const GraphTensor by_head = g.inner({s.batch, s.heads, s.key_places, width}, half);
        g.matmul(left, right, by_head);
        g.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, into);
    };
    const GraphTensor weights_flipped = g.inner(flipped, flipped_strides, half);
    g.reshape(weights, weights_flipped);
    collect(weights_flipped, d_output, dv, s.v_dim);

    const GraphTensor d_weights = g.inner(scores), centred = g.inner(scores), weighted = g.inner(scores), d_scores = g.inner(scores, half);
    g.matmul(d_output, v, d_weights);
    g.pointwise(CUDNN_POINTWISE_SUB, d_weights, delta, centred);
    g.pointwise(CUDNN_POINTWISE_MUL, centred, weights, weighted);
    g.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, d_scores);
    const GraphTensor d_scores_flipped = g.inner(flipped, flipped_strides, half);
    g.reshape(d_scores, d_scores_flipped);
    collect(d_scores_flipped, q, dk, s.qk_dim);

    const GraphTensor k_upright = g.inner(keys, key_strides, half);
    g.reshape(k, k_upright);
    g.matmul(d_scores, k_upright, query_sums);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, query_sums, dq);
    plan.ids = {q.id, k.id, v.id, output.id, log_sum_exp.id, scale.id};
    mask.name(plan.ids);
    plan.ids.insert(plan.ids.end(), {d_output.id, one.id, dq.id, dk.id, dv.id, delta.id, query_sums.id});
}

std::string text_of(const FusedShape& s) {
    return fmt::format("{} query and {} key heads of {} and {}, {} x {} {}, {}{}", s.heads, s.kv_heads, s.qk_dim, s.v_dim, s.batch,
                       s.places, s.causal ? "places" : fmt::format("places that see all of {}", s.key_places),
                       s.backward ? "backward" : "forward", s.packed ? ", packed" : "");
}

/// Warns once for each shape and kind of reason in the process, because its ranks have the same refusals.
void tell_refusal(const FusedShape& shape, bool of_addresses, const std::string& why) {
    static std::mutex mutex;
    static std::set<std::pair<FusedShape, bool>> told;
    const std::scoped_lock lock(mutex);
    if (!told.emplace(shape, of_addresses).second) return;
    fmt::print(stderr, "rank {}: cuDNN does not do attention of {}; separate products do, with more memory: {}\n", rank_of_this_thread(),
               text_of(shape), why);
}

/// Result of the first of a card's ranks for a shape.
struct FirstPlan {
    bool works = false;
    std::string refusal;  ///< where it does not work
    std::string written;  ///< CudnnGraph::written(), where it does
};

/// By card, shape and most bytes of workspace. Not the plans themselves: threads may call cuDNN, each with a handle of its own (developer
/// guide, "Thread Safety"), but not share a plan (NVIDIA to PyTorch, github.com/pytorch/pytorch/pull/103939). Plans that are
/// read from one text share no state that changes ("Deviceless Ahead-of-time Compilation" in the guide).
SharedValues<std::tuple<int, FusedShape, std::int64_t>, FirstPlan>& first_plans() {
    static SharedValues<std::tuple<int, FusedShape, std::int64_t>, FirstPlan> plans;
    return plans;
}

/// One thread at a time: the guide demands that a first handle is made before threads make theirs at the same time.
cudnnHandle_t make_handle() {
    static std::mutex mutex;
    const std::scoped_lock lock(mutex);
    cudnnHandle_t handle = nullptr;
    MGPLAN_CUDNN(cudnn().cudnnCreate(&handle));
    return handle;
}

class CudnnAttention final : public FusedLibrary {
public:
    CudnnAttention(cudaStream_t stream, int card) : stream_(stream), card_(card) {}
    ~CudnnAttention() override {
        plans_.clear();
        if (handle_ != nullptr) cudnn().cudnnDestroy(handle_);
    }
    CudnnAttention(const CudnnAttention&) = delete;
    CudnnAttention& operator=(const CudnnAttention&) = delete;

    bool accepts(const FusedShape& shape, const FusedMemory& memory) override {
        std::uint64_t addresses = 0;
        for (const void* each :
             {memory.q, memory.k, memory.v, memory.d_output, static_cast<const void*>(memory.output), static_cast<const void*>(memory.dq),
              static_cast<const void*>(memory.dk), static_cast<const void*>(memory.dv)}) {
            addresses |= address(each);
        }
        if (addresses % 16 != 0) {
            tell_refusal(
                shape, true,
                fmt::format("an array starts at no multiple of 16 (q {}, k {}, v {}, output {}, its gradient {}, dq {}, dk {}, dv {})",
                            memory.q, memory.k, memory.v, memory.output, memory.d_output, memory.dq, memory.dk, memory.dv));
            return false;
        }
        const Plan& plan = plan_for(shape, memory.workspace_bytes);
        return plan.works && plan.graph.workspace_bytes() <= memory.workspace_bytes;
    }

    void run(const FusedShape& shape, const FusedMemory& memory, double scale) override {
        Plan& plan = plan_for(shape, memory.workspace_bytes);
        if (const auto factor = static_cast<float>(scale); factor != plan.factor) {
            plan.factor = factor;
            plan.graph.forget_addresses();  // cuDNN does not document when it reads a scalar: when its address is set or when it runs
        }
        std::vector<void*> addresses{const_cast<void*>(memory.q), const_cast<void*>(memory.k),
                                     const_cast<void*>(memory.v), memory.output,
                                     memory.log_sum_exp,          &plan.factor};
        if (shape.causal) addresses.push_back(&plan.hidden);
        if (shape.backward) {
            addresses.insert(addresses.end(), {const_cast<void*>(memory.d_output), &plan.one, memory.dq, memory.dk, memory.dv, memory.delta,
                                               memory.query_sums});
        }
        plan.graph.run(plan.ids, addresses, memory.workspace);
    }

    [[nodiscard]] std::string attempt(const FusedShape& shape, std::int64_t workspace_bytes) {
        const auto start = std::chrono::steady_clock::now();
        const auto plan = build_plan(shape, workspace_bytes);
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        if (!plan->works) return fmt::format("refused after {:.2f} s: {}", time.count(), plan->refusal);
        return fmt::format("a plan with {} bytes of workspace, built in {:.2f} s", plan->graph.workspace_bytes(), time.count());
    }

    [[nodiscard]] std::string refusal(const FusedShape& shape, std::int64_t workspace_bytes) {
        const Plan& plan = plan_for(shape, workspace_bytes);
        return plan.works ? std::string() : plan.refusal;
    }

private:
    /// `workspace_bytes` depends on the shape alone, so plans are found by shape.
    Plan& plan_for(const FusedShape& shape, std::int64_t workspace_bytes) {
        auto& plan = plans_[shape];
        if (plan == nullptr) {
            plan = make_plan(shape, workspace_bytes);
            if (!plan->works) tell_refusal(shape, false, plan->refusal);
        }
        return *plan;
    }

    /// Builds the plan on the card's first rank that needs it; on others reads the first rank's plan, or takes over its refusal.
    [[nodiscard]] std::unique_ptr<Plan> make_plan(const FusedShape& shape, std::int64_t workspace_bytes) {
        std::unique_ptr<Plan> built;
        const FirstPlan& first = first_plans().get({card_, shape, workspace_bytes}, [&] {
            built = build_plan(shape, workspace_bytes);
            return built->works ? FirstPlan{true, {}, built->graph.written()} : FirstPlan{false, built->refusal, {}};
        });
        if (built != nullptr) return built;
        if (!first.works) {
            auto refused = std::make_unique<Plan>(nullptr);
            refused->refusal = first.refusal;
            return refused;
        }
        if (!first.written.empty()) {
            auto read = described_plan(shape, [&](Plan& plan) { return plan.graph.read(first.written, workspace_bytes); });
            if (read->works) return read;
        }
        return build_plan(shape, workspace_bytes);
    }

    [[nodiscard]] std::unique_ptr<Plan> build_plan(const FusedShape& shape, std::int64_t workspace_bytes) {
        return described_plan(shape, [&](Plan& plan) { return plan.graph.build(workspace_bytes, plan.refusal); });
    }

    /// Returns a plan that `finish` makes or refuses. A shape that cuDNN cannot even describe is refused like one without an engine,
    /// because attention runs without cuDNN too.
    template <class Finish>
    [[nodiscard]] std::unique_ptr<Plan> described_plan(const FusedShape& shape, const Finish& finish) {
        std::unique_ptr<Plan> plan;
        try {
            start();
            plan = std::make_unique<Plan>(handle_);
            if (shape.backward) {
                describe_backward(*plan, shape);
            } else {
                describe_forward(*plan, shape);
            }
            plan->works = finish(*plan);
        } catch (const CudnnError& error) {
            if (plan == nullptr) plan = std::make_unique<Plan>(nullptr);
            plan->works = false;
            plan->refusal = error.failure();
        }
        return plan;
    }

    void start() {
        if (handle_ != nullptr) return;
        cudnnHandle_t handle = make_handle();
        const cudnnStatus_t status = cudnn().cudnnSetStream(handle, stream_);
        if (status != CUDNN_STATUS_SUCCESS) {
            cudnn().cudnnDestroy(handle);
            MGPLAN_CUDNN(status);
        }
        handle_ = handle;
    }

    cudaStream_t stream_;
    int card_;
    cudnnHandle_t handle_ = nullptr;
    std::map<FusedShape, std::unique_ptr<Plan>> plans_;
};

}  // namespace

std::unique_ptr<FusedLibrary> make_cudnn_attention(cudaStream_t stream, int card) {
    if (!cudnn_unavailable().empty()) return nullptr;
    return std::make_unique<CudnnAttention>(stream, card);
}

std::string try_cudnn_attention(const FusedShape& shape, std::int64_t workspace_bytes) {
    if (!cudnn_unavailable().empty()) return cudnn_unavailable();
    constexpr int kAlone = -1;  // nothing is shared
    return CudnnAttention(nullptr, kAlone).attempt(shape, workspace_bytes);
}

std::string cudnn_attention_refusal(int card, const FusedShape& shape, std::int64_t workspace_bytes) {
    if (!cudnn_unavailable().empty()) return cudnn_unavailable();
    return CudnnAttention(nullptr, card).refusal(shape, workspace_bytes);
}

std::string cudnn_device_properties(int ordinal) {
    if (!cudnn_unavailable().empty()) throw RunError(cudnn_unavailable());
    struct Properties {
        cudnnBackendDescriptor_t descriptor = nullptr;
        ~Properties() {
            if (descriptor != nullptr) cudnn().cudnnBackendDestroyDescriptor(descriptor);
        }
    } made;
    MGPLAN_CUDNN(cudnn().cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made.descriptor));
    const std::int32_t device = ordinal;
    MGPLAN_CUDNN(cudnn().cudnnBackendSetAttribute(made.descriptor, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &device));
    MGPLAN_CUDNN(cudnn().cudnnBackendFinalize(made.descriptor));
    std::int64_t count = 0;
    MGPLAN_CUDNN(
        cudnn().cudnnBackendGetAttribute(made.descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &count, nullptr));
    std::string json(static_cast<std::size_t>(count), '\0');
    MGPLAN_CUDNN(cudnn().cudnnBackendGetAttribute(made.descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, count,
                                                  &count, json.data()));
    json.resize(json.find('\0') == std::string::npos ? json.size() : json.find('\0'));
    return json;
}

std::string cudnn_version() {
    if (!cudnn_unavailable().empty()) return {};
    const std::size_t version = cudnn().cudnnGetVersion();  // 91900 is 9.19.0
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace mgplan::runtime::cuda
