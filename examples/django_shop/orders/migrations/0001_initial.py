from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sku", models.CharField(max_length=64)),
                ("cents", models.PositiveIntegerField()),
                ("card", models.CharField(max_length=19)),
                ("is_paid", models.BooleanField(default=False)),
                ("charge_id", models.CharField(blank=True, max_length=64)),
                ("placed_at", models.DateTimeField(auto_now_add=True)),
            ],
        )
    ]
