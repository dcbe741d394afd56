"""The lines of a log, in English and Chinese side by side.

`{m}` is a message, or a word of `WORDS`, that is translated too, `{n}` the same after a semicolon, or
nothing, `{w}` one that may stay as it is; `{1}` and so on are values.
"""

LOG_LINES = (
    (
        "step {1}/{2}  loss {3}  lr {4}  {5} rows/s  {6} steps/s  left {7}  {8} skipped",
        "第 {1}/{2} 步  损失 {3}  学习率 {4}  {5} 行/秒  {6} 步/秒  剩余 {7}  跳过 {8} 步",
    ),
    (
        "step {1}/{2}  loss {3}  lr {4}  {5} rows/s  {6} steps/s  left {7}",
        "第 {1}/{2} 步  损失 {3}  学习率 {4}  {5} 行/秒  {6} 步/秒  剩余 {7}",
    ),
    ("step {1}  {2}: {3}  (best so far)", "第 {1} 步  {2}：{3}  （目前最好）"),
    ("step {1}  {2}: {3}", "第 {1} 步  {2}：{3}"),
    ("Saved in {1}; classify text with: {2}", "已保存到 {1}；分类文本的命令：{2}"),
    (
        "Saved in {1}; train a classifier from it with: {2}",
        "已保存到 {1}；用它训练分类模型的命令：{2}",
    ),
    ("Saved in {1}", "已保存到 {1}"),
    (
        "Settings chosen for you: {1} (for {2} with LoRA, {m}, {3} steps in an epoch)",
        "自动选择的设置：{1}（模型 {2} 加 LoRA，{m}，每轮 {3} 步）",
    ),
    (
        "Settings chosen for you: {1} (for {2}, {m}, {3} steps in an epoch)",
        "自动选择的设置：{1}（模型 {2}，{m}，每轮 {3} 步）",
    ),
    (
        "The model has random weights. {1}, a pretrained one, would classify better, but its data file is "
        "not here: {2}.",
        "模型的权重是随机的。预训练模型 {1} 会更准，但这里没有它的数据文件：{2}。",
    ),
    (
        "Few rows, {1} for {2} labels: a linear head is fitted on the encoder as it is, and no row is held "
        "out as dev, as with --config {3}; --model.head random trains the encoder.",
        "样本很少：{2} 个标签共 {1} 行。编码器保持不变，只拟合线性分类头，也不留出验证集，"
        "等同于 --config {3}；如要训练编码器，请加 --model.head random。",
    ),
    (
        "{1} rows for {2} labels: a linear head is fitted first, then all weights are trained; "
        "--model.head random leaves out the first part.",
        "{2} 个标签共 {1} 行：先拟合线性分类头，再训练全部权重；如要跳过前一步，请加 --model.head random。",
    ),
    ("train.epochs auto: {1} epochs of {2} steps, {m}.", "train.epochs auto：{1} 轮，每轮 {2} 步，{m}。"),
    ("as usual for {m}", "{m}通常如此"),
    ("because the smallest class has only {1} training rows", "因为最小的类别只有 {1} 行训练样本"),
    ("because {1} classes need at least {2} steps", "因为 {1} 个类别至少需要 {2} 步"),
    ("because {1} steps are enough", "因为 {1} 步已经足够"),
    ("model.freeze {1}: {2} parameters are trained.", "model.freeze {1}：训练 {2} 个参数。"),
    (
        "model.lora.rank {1}: {2} parameters are trained, in {3} and the head.",
        "model.lora.rank {1}：训练 {2} 个参数，在 {3} 和分类头中。",
    ),
    (
        "{1} was trained on other labels ({2}): its encoder is kept, the head is new.",
        "{1} 训练时用的是别的标签（{2}）：保留编码器，分类头是新的。",
    ),
    (
        "{1} has no weights for {2}; initialised at random",
        "{1} 没有 {2} 的权重，用随机值初始化",
    ),
    (
        "{1} has no head for masked language modelling: a new one begins from its embeddings",
        "{1} 没有掩码语言模型的输出层：新的输出层从它的词向量开始",
    ),
    (
        "{1}, {2} layers, {3} wide, {4} million parameters, {5}, {w}",
        "{1}，{2} 层，宽 {3}，参数 {4} 百万个，{5}，{w}",
    ),
    (
        "{1} process(es), {2}, {3} threads; {4} steps of {5} rows{w}",
        "{1} 个进程，{2}，{3} 个线程；共 {4} 步，每步 {5} 行{w}",
    ),
    ("run folder {1}", "训练目录 {1}"),
    ("{1}: {2} rows ({3}), {4} skipped", "{1}：{2} 行（{3}），跳过 {4} 行"),
    ("{1}: {2} rows ({3}), {4} without label", "{1}：{2} 行（{3}），{4} 行没有标签"),
    ("{1}: {2} rows ({3})", "{1}：{2} 行（{3}）"),
    ("line {1}: {m}", "第 {1} 行：{m}"),
    ("warning: {m}", "注意：{m}"),
    (
        "{1} is read as plain text, and has tabs; is it a table (--format tsv)?",
        "{1} 按纯文本读取，里面有制表符；它是表格吗（--format tsv）？",
    ),
    ("{1}: training, its messages are in {2}", "{1}：正在训练，它的信息在 {2} 里"),
    ("{1}: finished before", "{1}：以前已经完成"),
    ("Batches are padded: {1}.", "批次需要填充：{1}。"),
    ("Resuming from step {1}.", "从第 {1} 步继续训练。"),
    (
        "Training to step {1} instead of {2}; from here on the learning rate is that of a run of {3} steps.",
        "训练到第 {1} 步，而不是第 {2} 步；从这里起，学习率按 {3} 步的训练计算。",
    ),
    (
        "{1} has no training state to resume from; the run starts from the beginning.",
        "{1} 里没有可恢复的训练状态，从头开始训练。",
    ),
    ("Settings since step {1}: {2}.", "从第 {1} 步起的设置：{2}。"),
    (
        "Adapter merged into {1}: logits of {2} rows differ by at most {3}.",
        "适配器已并入 {1}：{2} 行的 logits 最多相差 {3}。",
    ),
    ("Stopped by {1} after step {2}; {m}.", "第 {2} 步后被 {1} 停止；{m}。"),
    ("resume with --resume auto", "用 --resume auto 继续"),
    (
        "only the report is missing, and --resume auto writes it",
        "只缺报告，用 --resume auto 写出",
    ),
    (
        "Stopped by {1} before the report was complete; --resume auto writes it.",
        "报告完成前被 {1} 停止；用 --resume auto 写出报告。",
    ),
    (
        "Stopped early after step {1}: {2} has not been better than at step {3} in {4} evaluations.",
        "第 {1} 步后提前停止：{2} 在 {4} 次评测中没有超过第 {3} 步。",
    ),
    (
        "memory ran out in step {1} with micro-batches of {2} rows; the step is repeated, and from now on "
        "they have at most {3} rows: {4} micro-batches a step in each process; the global batch stays the "
        "same",
        "第 {1} 步用 {2} 行的微批次时内存不足；重做这一步，以后每个微批次最多 {3} 行：每个进程每步 {4} 个"
        "微批次；全局批次不变",
    ),
    (
        "DataParallel found {1} CUDA devices, so it does what run_single.py does; it needs two or more",
        "DataParallel 找到 {1} 个 CUDA 设备，所以与 run_single.py 相同；它需要两个以上",
    ),
    (
        "this CPU multiplies matrices in bf16 at {1} times the speed of fp32: train.precision fp32 is faster "
        "here",
        "这个 CPU 上 bf16 矩阵乘法的速度是 fp32 的 {1} 倍：这里用 train.precision fp32 更快",
    ),
    ("train.learning_rate is 0, so nothing is trained", "train.learning_rate 是 0，什么也不会训练"),
    ("{1}; the step was skipped", "{1}；跳过了这一步"),
    ("{1} is damaged and is built again", "{1} 已损坏，重新生成"),
    ("{1}: copied to {2} from byte {3} on", "{1}：复制到 {2}，从第 {3} 个字节开始"),
    ("{1} has no undamaged training state", "{1} 里没有完好的训练状态"),
)
WORDS = {
    "": "",
    "text": "文本",
    "label": "标签",
    "second text": "第二段文本",
    "Model": "模型",
    "packed batches": "批次不填充",
    "padded batches": "批次填充",
    ", each class drawn equally often": "，各类别抽样次数相同",
    "single texts": "单个文本",
    "pairs of texts": "文本对",
}
