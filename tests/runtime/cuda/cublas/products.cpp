#include "tests/runtime/cuda/cublas/products.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "formats/model_source.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/cuda/ops/table.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::runtime::cuda {
namespace {

/// A cuDNN that takes every shape and computes nothing.
class EveryShape final : public FusedLibrary {
public:
    bool accepts(const FusedShape& /*shape*/, const FusedMemory& /*memory*/) override { return true; }
    void run(const FusedShape& /*shape*/, const FusedMemory& /*memory*/, double /*scale*/) override {}
};

/// What of a product cuBLASLt is told (ProductKey in runtime/cuda/cublas_product.hpp).
auto told(const Gemm& x) {
    return std::tuple(std::tuple(x.transpose_a, x.transpose_b, x.m, x.n, x.k, x.beta != 0, x.input, x.other_input, x.output),
                      std::tuple(x.a_pitch, x.a_stride, x.b_pitch, x.b_stride, x.c_pitch, x.c_stride, x.batch, x.workspace_bytes),
                      std::tuple(alignment_of(x.a), alignment_of(x.b), alignment_of(x.c), x.a_scale != nullptr, x.a_scaling, x.b_scaling,
                                 x.bias != nullptr, x.row_sums != nullptr));
}

class Collection {
public:
    std::string step;
    std::vector<AskedProduct> products;

    void add(const Gemm& gemm) {
        if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;  // as CublasLt::multiply()
        if (known_.insert(told(gemm)).second) products.push_back({step, gemm});
    }

private:
    std::set<decltype(told(Gemm{}))> known_;
};

/// Starts nothing, and keeps the products; see launch.hpp for what a launcher offers.
class CollectingLauncher {
public:
    explicit CollectingLauncher(Collection& collection) : collection_(collection) {}
    static CollectingLauncher& of(model::Device& device);

    template <class Body>
    void each(std::int64_t /*count*/, const Body& /*body*/) {}
    template <int N, class Body>
    void packs(std::int64_t /*count*/, const Body& /*body*/) {}
    template <class Body>
    void teams(std::int64_t /*count*/, int /*lanes*/, const Body& /*body*/) {}
    void copy(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) {}
    void zero(void* /*memory*/, std::int64_t /*bytes*/) {}
    void gemm(const Gemm& gemm) { collection_.add(gemm); }
    [[nodiscard]] FusedLibrary* library() { return &library_; }

private:
    Collection& collection_;
    EveryShape library_;
};

/// Addresses that lie as those of a card and are never followed.
class MadeUpAddresses final : public model::Allocator {
public:
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory /*category*/, std::string_view /*name*/) override {
        const std::int64_t begin = next_;
        next_ += (bytes + 255) / 256 * 256;
        return reinterpret_cast<std::byte*>(begin);  // NOLINT(performance-no-int-to-ptr)
    }
    void give_back(std::byte* /*memory*/, std::int64_t /*bytes*/, model::MemoryCategory /*category*/) noexcept override {}

private:
    std::int64_t next_ = 256;
};

/// Reads zeros, but for the numbers of rows that routers choose, which are those it was given.
class CollectingDevice final : public model::Device {
public:
    CollectingDevice(const model::KernelTraits& traits, Collection& collection, std::vector<std::int32_t> chosen)
        : Device(model::DeviceKind::cuda, traits, std::make_unique<MadeUpAddresses>(), &table()),
          launcher_(collection),
          chosen_(std::move(chosen)) {}
    [[nodiscard]] CollectingLauncher& launcher() { return launcher_; }

private:
    static const model::KernelTable& table() {
        static const model::KernelTable filled = [] {
            model::KernelTable all{};
            fill_dense<CollectingLauncher>(all);
            fill_flat<CollectingLauncher>(all);
            fill_recurrent<CollectingLauncher>(all);
            fill_router<CollectingLauncher>(all);
            return all;
        }();
        return filled;
    }
    void do_write(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
    void do_read(void* to, const void* /*from*/, std::int64_t bytes) override {
        if (bytes == std::ssize(chosen_) * static_cast<std::int64_t>(sizeof(std::int32_t)))
            std::memcpy(to, chosen_.data(), static_cast<std::size_t>(bytes));
        else
            std::memset(to, 0, static_cast<std::size_t>(bytes));
    }
    void do_zero(void* /*memory*/, std::int64_t /*bytes*/) override {}

    CollectingLauncher launcher_;
    std::vector<std::int32_t> chosen_;
};

CollectingLauncher& CollectingLauncher::of(model::Device& device) {
    return static_cast<CollectingDevice&>(device).launcher();
}

/// A step of a model: one sequence of so many places on the first rank.
struct Step {
    std::string name;
    ModelSpec model;
    Precision precision = Precision::bf16;
    Fp8Recipe recipe = Fp8Recipe::tensorwise;
    std::int64_t tp = 1, ep = 1;
    std::int64_t sequence = 4096;
    bool fused = true;
};

model::TrainingTask task_of(const Step& step) {
    model::TrainingTask task;
    task.model = step.model;
    task.training.precision = step.precision;
    task.training.megatron.fp8_recipe = step.recipe;
    task.training.distributed_optimizer = true;
    auto& layout = task.layout;
    layout.sizes = {step.tp * step.ep, step.tp, 1, step.ep, step.model.moe ? 1 : step.tp, 1, AxisOrder{}, 1};
    layout.vpp = 1;
    layout.group_size = 1;
    layout.num_microbatches = 2;  // the second adds to gradients
    layout.sequence_parallel = step.tp > 1;
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(step.model.layers, step.model.mtp_layers, 1, 1).value());
    task.batch = {layout.num_microbatches * layout.dp(), step.sequence};
    return task;
}

/// Copies for each expert as every rank has them: pairs of experts that share evenly what two of them get on the average, more and more
/// unevenly; the first pair leaves one row.
std::vector<std::int32_t> chosen_rows(const Step& step) {
    if (!step.model.moe) return {};
    const std::int64_t experts = step.model.moe->experts, copies = step.sequence / step.tp * step.model.moe->top_k;
    std::vector<std::int32_t> list;
    for (std::int64_t rank = 0; rank < step.ep; ++rank) {
        for (std::int64_t e = 0; e < experts; ++e) {
            const std::int64_t each = copies / experts + (e == 0 ? copies % experts : 0);
            const std::int64_t moved = e / 2 == 0 ? copies / experts - (rank == 0 ? 1 : 0) : (e / 2 * 37 + rank * 11) % (copies / experts);
            list.push_back(static_cast<std::int32_t>(each + (e % 2 == 0 ? moved : -moved)));
        }
    }
    return list;
}

void collect(const Step& step, int architecture, Collection& collection) {
    collection.step = step.name;
    CollectingDevice device({model::DeviceKind::cuda, architecture, step.fused}, collection, chosen_rows(step));
    const model::TrainingTask task = task_of(step);
    model::RankTrainer trainer(task, device, model::recording_world(0, static_cast<int>(step.tp * step.ep)));
    const auto tokens = [](std::int64_t /*sequence*/, std::span<std::int32_t> into) { std::fill(into.begin(), into.end(), 7); };
    (void)trainer.step(tokens, 1e-4);
}

ModelSpec preset(const std::string& name) {
    return formats::load_model(name).model;
}

ModelSpec gpt2() {
    ModelSpec model = tests::gpt_of("gpt2-124m", {.layers = 12,
                                                  .hidden = 768,
                                                  .ffn = 3072,
                                                  .heads = 12,
                                                  .head_dim = 64,
                                                  .vocab = 50257,
                                                  .vocab_divisor = 128,
                                                  .max_positions = 1024});
    model.tied_embeddings = true;
    return model;
}

std::vector<Step> steps_in_bf16() {
    return {{.name = "llama3-8b tp1", .model = preset("llama3-8b")},
            {.name = "llama3-8b tp2", .model = preset("llama3-8b"), .tp = 2},
            {.name = "llama3-8b tp8", .model = preset("llama3-8b"), .tp = 8},
            {.name = "llama3-8b unfused", .model = preset("llama3-8b"), .sequence = 1000, .fused = false},
            {.name = "gpt2-124m", .model = gpt2(), .sequence = 1024},
            {.name = "gpt3-175b tp8", .model = preset("gpt3-175b"), .tp = 8, .sequence = 2048},
            {.name = "mixtral-8x7b ep8", .model = preset("mixtral-8x7b"), .ep = 8},
            {.name = "deepseek-v2-lite ep8", .model = preset("deepseek-v2-lite"), .ep = 8},
            {.name = "deepseek-v3 tp2 ep8", .model = preset("deepseek-v3"), .tp = 2, .ep = 8},
            {.name = "nemotron-h-8b tp2", .model = preset("nemotron-h-8b"), .tp = 2},
            {.name = "nemotron-h-8b tp2 with a short chunk", .model = preset("nemotron-h-8b"), .tp = 2, .sequence = 1000},
            {.name = "small unfused", .model = tests::small_llama(2), .sequence = 17, .fused = false},
            {.name = "small fp32", .model = tests::small_llama(2), .precision = Precision::fp32, .sequence = 17},
            {.name = "gpt2-124m fp32", .model = gpt2(), .precision = Precision::fp32, .sequence = 1024},
            {.name = "small gpt fp64", .model = tests::small_gpt(2), .precision = Precision::fp64, .sequence = 17},
            {.name = "gpt2-124m fp64", .model = gpt2(), .precision = Precision::fp64, .sequence = 1024}};
}

std::vector<Step> steps_in_fp8(Fp8Recipe recipe, const std::string& name) {
    std::vector<Step> steps{{.name = "llama3-8b tp1", .model = preset("llama3-8b")},
                            {.name = "llama3-8b tp8", .model = preset("llama3-8b"), .tp = 8},
                            {.name = "gpt3-175b tp8", .model = preset("gpt3-175b"), .tp = 8, .sequence = 2048},
                            {.name = "mixtral-8x7b ep8", .model = preset("mixtral-8x7b"), .ep = 8},
                            {.name = "deepseek-v2-lite ep8", .model = preset("deepseek-v2-lite"), .ep = 8},
                            {.name = "deepseek-v3 ep8", .model = preset("deepseek-v3"), .ep = 8}};
    for (Step& step : steps) {
        step.name += " " + name;
        step.precision = Precision::fp8;
        step.recipe = recipe;
    }
    return steps;
}

}  // namespace

std::int64_t alignment_of(const void* memory) {
    const std::uint64_t bits = address(memory) | 256U;
    return static_cast<std::int64_t>(bits & (~bits + 1));
}

std::string text_of(const Gemm& x) {
    const bool fp8 = bytes_of(x.input) == 1;
    std::string text = fmt::format("({}{} x {}) x ({}{} x {}) of {}{} into {}", x.transpose_a ? "transposed " : "", x.m, x.k,
                                   x.transpose_b ? "transposed " : "", x.k, x.n, to_string(x.input),
                                   fp8 ? fmt::format(" and {}", to_string(x.other_input)) : "", to_string(x.output));
    if (fp8) text += fmt::format(", scales {} and {}", static_cast<int>(x.a_scaling), static_cast<int>(x.b_scaling));
    if (x.beta != 0) text += ", added";
    if (x.bias != nullptr) text += ", with a bias";
    if (x.row_sums != nullptr) text += ", with sums of rows";
    if (x.batch > 1) text += fmt::format(", {} at strides {}, {} and {}", x.batch, x.a_stride, x.b_stride, x.c_stride);
    text += fmt::format(", pitches {}, {} and {}", x.a_pitch, x.b_pitch, x.c_pitch);
    return text + fmt::format(", at multiples of {}, {} and {}", alignment_of(x.a), alignment_of(x.b), alignment_of(x.c));
}

std::vector<AskedProduct> asked_products(int architecture) {
    std::vector<Step> steps = steps_in_bf16();
    const auto add = [&](Fp8Recipe recipe, const std::string& name) {
        for (Step& step : steps_in_fp8(recipe, name)) steps.push_back(std::move(step));
    };
    if (architecture >= 89) add(Fp8Recipe::tensorwise, "fp8-current");
    if (architecture >= 89) add(Fp8Recipe::delayed, "fp8-delayed");
    if (architecture == 90) add(Fp8Recipe::blockwise, "fp8-blockwise");
    if (architecture >= 100) add(Fp8Recipe::mxfp8, "mxfp8");
    Collection collection;
    for (const Step& step : steps) collect(step, architecture, collection);
    return std::move(collection.products);
}

}  // namespace mgplan::runtime::cuda
