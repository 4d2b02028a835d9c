#pragma once
// Events at which a chunk's weights are read and their gradients are complete, for overlapped communication.

#include "model/layers/deferred_gradients.hpp"

namespace mgplan::model {

/// Called by a ModelChunk. A unit is a part of the chunk that uses its weights together: the embedding, the attention half
/// and the MLP half of each layer, for multi-token prediction the norms and projection of each depth and the halves of its
/// layer, the loss head; numbered in this order (ModelChunk::unit_of). Megatron-LM does the same
/// with module hooks (core/distributed/distributed_data_parallel.py). Called by the rank's thread, between ops.
///
/// Sections are coarser: the embedding, each decoder layer, the loss head (model/layers/chunk_sections.hpp); what Megatron-FSDP and
/// PyTorch's FSDP2 gather and reduce together. A pass enters and leaves them one after the other.
class WeightEvents {
public:
    virtual ~WeightEvents() = default;
    /// A forward, a recomputed one too, is about to read the unit's weights.
    virtual void before_use(int unit) = 0;
    /// One microbatch's backward has added all it has to the gradients of the unit's weights.
    virtual void after_backward(int unit) = 0;

    /// A pass is about to read a section's weights; `next`: the section whose weights it reads after it, -1: none.
    virtual void before_section(int /*section*/, int /*next*/) {}
    /// It does not read them any more.
    virtual void after_section(int /*section*/) {}
    /// A backward is about to add to the gradients of a section's weights.
    virtual void before_gradients(int /*section*/) {}
    /// It has added all; `next`: the section that it adds to after it, -1: none.
    virtual void after_gradients(int /*section*/, int /*next*/) {}
};

/// A layer's access to the listener, if there is one; `first` is its first unit. With `deferred` a backward's gradients are
/// complete in the weight-gradient pass, which reports them.
struct UnitEvents {
    WeightEvents* listener = nullptr;
    int first = 0;
    DeferredGradients* deferred = nullptr;
    /// The same from `units` units on.
    [[nodiscard]] UnitEvents from(int units) const { return {listener, first + units, deferred}; }
    void before_use(int unit) const {
        if (listener != nullptr) listener->before_use(first + unit);
    }
    void after_backward(int unit) const {
        if (listener == nullptr) return;
        if (deferred != nullptr)
            deferred->add([listener = listener, unit = first + unit] { listener->after_backward(unit); });
        else
            listener->after_backward(first + unit);
    }
};

}  // namespace mgplan::model
